"""Tools of other servers over the Model Context Protocol, and our own tools served over it."""
