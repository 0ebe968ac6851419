"""What a sharded program is: mesh, sharding, collectives, program, plan, and the laws they obey."""
