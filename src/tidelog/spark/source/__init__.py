"""Reading topics: what a query asks for, which offsets that is, and the tasks that fetch them."""
