"""The page in the browser: fields drawn by `field_view.js`, served by aiohttp or written into one HTML file.

server     the page of `penn view`
views      what a browser asks for; each view computed once for all browsers, remembered while there is room
workers    the processes that work for it
workbench  what the page shows and says, without the page
shapes     of the designs, as polygons
subjects   designs with sliders, by the kind of network
records    fields as `field_view.js` draws them
uploads    meshes and cases that users upload
"""
