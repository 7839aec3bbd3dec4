"""The page in the browser: fields drawn by `field_view.js`, served by trame or written into one HTML file."""
