"""What queries run in: Spark's session, its Java, its Python workers and their memory."""
