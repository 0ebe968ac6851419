"""What may be done to a sharded value, and what each mesh axis means for a product."""
