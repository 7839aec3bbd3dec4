"""The page in the browser: fields drawn by `field_view.js`, served by trame or written into one HTML file.

server     the page of `penn view`
workbench  what the page shows, without the page
records    fields as `field_view.js` draws them
reading    meshes that users upload
boundary   the boundary in pieces to point at
wording    a prediction in words
"""
