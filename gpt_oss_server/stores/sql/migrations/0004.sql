-- Where each item begins in the bytes that hold it, so that a page of items reads no more than itself: int32 each,
-- and one for the end. NULL: a program that did not know them stored the items, which are then read whole.
ALTER TABLE parts ADD COLUMN places {bytes};
ALTER TABLE responses ADD COLUMN places {bytes};

-- The number of an item among those of its part, or of its response's input. NULL: unknown, or of the output.
ALTER TABLE items ADD COLUMN place BIGINT;
