"""A capture as one HTML file: the user's source, the graph of kernels, and the kernels, linked with each other.

    page.py     puts the parts into the template: the one function that others call
    states.py   several states of the patches as one page, chosen by switches; diff_page.py has two sides
    sources.py  the user's files, read when the report is made
    lines.py    what stands beside each line of them
    kernels.py  kernels that are one program, each once
    nodes.py    why: explanations of kernels and nodes, as compact data
    graph.py    the graph of each schedule as SVG
    code.py     source text cut into coloured parts

`page.html.jinja`, `page.css` and `page.js` are ours, and small: nothing of another project is copied here, so no
library is inlined. Python makes all that can be made beforehand. The script links, searches and zooms.
"""
