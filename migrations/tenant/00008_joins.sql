-- +goose Up

-- Of a fan-out whose children are tasks that an attempt started: types has the number of the type
-- of the children of each run in firsts, and 0 for children that can't be made as their type is
-- gone. places has the place of each child in the list of the worker; null: they are in that order.
-- Of the fan-out of a task that is nobody's child, tree is how many tasks are children of its
-- children, of their children, and so on.
ALTER TABLE fan_outs
  ADD COLUMN types  int[],
  ADD COLUMN places int[],
  ADD COLUMN tree   int NOT NULL DEFAULT 0;
