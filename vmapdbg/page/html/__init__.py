"""One run, or two with before and after, as one HTML file: source, graph of kernels, and kernels, linked.

    page.py     makes the page of a view (`page/view.py`): the one function that others call
    states.py   several states of the patches as one page, chosen by switches
    source.py   the user's files, and the notes beside each line
    kernels.py  the rows of kernels, with their source
    nodes.py    explanations of kernels and nodes, as compact data
    drawing.py  the graph of each schedule as SVG; parts.py chooses what is drawn inside boxes
    code.py     source text cut into coloured parts

The templates, `page.css` and `page.js` are ours, without a library. Python makes everything that can be made
beforehand. The script links, searches and zooms.
"""
