-- +goose Up

-- What a tenant's role has granted the base role, as a hash; null: it isn't known. A program that
-- grants something else runs its grants.
ALTER TABLE tenants ADD COLUMN grants text;

-- +goose Down
ALTER TABLE tenants DROP COLUMN grants;
