"""The page in the browser: fields drawn by `field_view.js`, served by aiohttp or written into one HTML file.

server     the page of `penn view`
views      each view computed once for all browsers, remembered while there is room
pool       the processes that work for it
worker     what such a process does
requests   what a browser asks for
workbench  what the page shows, without the page
subjects   designs with sliders, by the kind of network
records    fields as `field_view.js` draws them
reading    meshes and cases that users upload
archives   OpenFOAM cases in zip files
boundary   the boundary in pieces to point at
wording    a prediction in words
"""
