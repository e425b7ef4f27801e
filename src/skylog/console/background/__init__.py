"""Background readers of the audit topic and the jobs topic. They run only while a page needs them."""
