"""Tools of other servers over the Model Context Protocol, and this project's tools served over it."""
