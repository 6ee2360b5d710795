-- +goose Up

-- How many tasks of a tenant count in its quota submits_per_second that nobody submitted over HTTP:
-- tasks of ticks, and children that were not known when their parent was submitted. total only
-- grows. The nodes that take requests charge the tenant for what was added since they last looked.
CREATE TABLE submit_charges (
  tenant text   PRIMARY KEY,
  total  bigint NOT NULL
);

-- +goose Down
DROP TABLE submit_charges;
