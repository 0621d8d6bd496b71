"""Consumer groups: the classic protocol, the consumer protocol, and the way between them."""
