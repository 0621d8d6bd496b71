"""What the controller decides, by area: an image and a request in, records out."""
