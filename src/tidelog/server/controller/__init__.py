"""The way of a request to the controller and back."""
