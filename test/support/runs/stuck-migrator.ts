// A process that migrates the database at its first argument and then starts a migration that never ends,
// so that a test can kill it during a migration.
import { DatabaseSync } from 'node:sqlite';
import { MIGRATIONS, migrate } from '../../../src/store/sqlite/schema.ts';

const endless = `
create table half (bytes blob);
insert into half with recursive row (n) as (select 1 union all select n + 1 from row)
  select randomblob(4000) from row;
`;

const database = new DatabaseSync(process.argv[2] ?? '');
database.exec('pragma journal_mode = wal');
migrate(database);
migrate(database, [...MIGRATIONS, endless]);
