"""One run, or two with before and after, as one HTML file: source, graph of kernels, and kernels, linked.

    page.py     makes the page of a view (`page/view.py`), or of several states of the patches
    source.py   the user's files with notes next to each line; source text cut into coloured parts
    kernels.py  the rows of kernels, with their source
    nodes.py    explanations of kernels and nodes, as compact data
    drawing.py  the graph of each schedule as SVG, and what is inside its boxes

Python makes all that it can; our script (`page.js`, no library) links, searches and zooms."""
