-- +goose Up

-- Who may claim a task in line: {"exclude": [name], "labels": ["name=value"]}; null: anyone, or not
-- known here. The options of the task have the rules; nodes of the version before leave the column
-- null.
ALTER TABLE wait ADD COLUMN rules jsonb;
