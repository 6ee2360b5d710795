-- +goose Up

-- The database role that a tenant's work is done under, and that owns its schema; null
-- where there is none, with --database-roles=off. Two databases of a cluster share it if
-- one was copied from the other.
ALTER TABLE tenants ADD COLUMN role text UNIQUE;

-- Roles belong to all databases of a cluster, so their names begin with a prefix that is
-- this database's own. base_role is the role for what belongs to no tenant; null until
-- it was made.
CREATE TABLE fence (
  one       boolean PRIMARY KEY DEFAULT true CHECK (one),
  prefix    text    NOT NULL CHECK (prefix ~ '^asyncflow_[0-9a-f]{8}$'),
  base_role text
);
INSERT INTO fence (prefix) VALUES ('asyncflow_' || substr(gen_random_uuid()::text, 1, 8));

-- +goose Down

-- The roles stay, and own the tenants' schemas; whoever migrated is a member of each.
DROP TABLE fence;
ALTER TABLE tenants DROP COLUMN role;
