-- +goose Up

-- What a listed token says about the claims of its bearer: {"claimers": [name], "labels": {name:
-- [value]}, "types": [type or type/stage]}; null: nothing, or it was listed by a version that didn't
-- write it down.
ALTER TABLE tokens ADD COLUMN limits jsonb;
