// Copies all rows of one database to another, in batches. Each batch moves the cursor of the copy in the same
// transaction, so a copy that was killed goes on behind the last batch.
import { randomUUID } from 'node:crypto';
import { MIGRATIONS as POSTGRES_MIGRATIONS } from '../postgres/schema.ts';
import { MIGRATIONS as SQLITE_MIGRATIONS } from '../sqlite/schema.ts';
import type { SqlValue } from '../store.ts';
import {
  type BatchBounds,
  type CopiedDatabase,
  CopyError,
  countRows,
  insertRows,
  type Key,
  listFilled,
  readKey,
  readRows,
  readTables,
  type TableShape,
} from './copied-database.ts';
import {
  type CopyProgress,
  describeCommand,
  moveProgress,
  readProgress,
  readSourceMark,
  removeProgress,
  removeSourceMark,
  writeProgress,
  writeSourceMark,
} from './copy-state.ts';

export interface CopyStep {
  table: string;
  /** Rows in the target. */
  copied: number;
  /** Rows in the source. */
  total: number;
}

export interface CopiedTable {
  table: string;
  source: number;
  target: number;
}

export interface CopyOptions {
  source: CopiedDatabase;
  target: CopiedDatabase;
  /** As the command line names the databases, without passwords. */
  names: { source: string; target: string };
  bounds: BatchBounds;
  /** Called after each batch. */
  onProgress: (step: CopyStep) => void;
  /** Ends the copy after a batch. */
  signal: AbortSignal;
}

const SCHEMA = `sqlite ${SQLITE_MIGRATIONS.length}, postgres ${POSTGRES_MIGRATIONS.length}`;

/** @returns the rows of each table; undefined if the signal ended the copy. @throws CopyError */
export async function copyDatabase(options: CopyOptions): Promise<CopiedTable[] | undefined> {
  const { names, source, target } = options;
  const tables = await readTables();
  const progress = await begin(options, tables);
  try {
    await copyRows(options, tables, progress);
  } catch (error) {
    if (!(error instanceof CopyError)) throw error;
    const command = describeCommand(names);
    throw new CopyError(error.role, `${error.message}. To continue, run \`${command}\`.`);
  }
  if (options.signal.aborted) return undefined;
  const counts = await countAll(options, tables);
  const differing = counts.filter((count) => count.source !== count.target);
  if (differing.length > 0) throw new CopyError('target', describeDifference(differing));
  await target.write(removeProgress);
  await source.write(removeSourceMark);
  return counts;
}

/** Begins the copy, or continues the one that the target has. @throws CopyError */
async function begin(
  { names, source, target }: CopyOptions,
  tables: readonly TableShape[],
): Promise<CopyProgress> {
  if (await source.read(readProgress)) {
    throw new CopyError('source', 'is an unfinished copy itself; finish that copy first');
  }
  await refuseShards(source);
  const found = await target.read(readProgress);
  const mark = await source.read(readSourceMark);
  if (found) return checkSame(found, { names, mark });
  const filled = [
    ...(await target.read(() => listFilled(tables))),
    ...(await listClusterTables(target)),
  ];
  if (filled.length > 0) {
    throw new CopyError(
      'target',
      `is not empty: ${filled.join(', ')} ${filled.length === 1 ? 'has' : 'have'} rows. ` +
        'Name a new file, an empty database, or another schema with ?search_path=NAME',
    );
  }
  return start({ names, source, target }, mark);
}

/** @throws CopyError */
async function refuseShards(source: CopiedDatabase): Promise<void> {
  const { shard } = await source.countClusterRows();
  if (shard <= 1) return;
  throw new CopyError(
    'source',
    `has ${shard} shards, each with jobs in a schema of its own, and a copy reads one schema. ` +
      'Use pg_dump and pg_restore to move this database to another server',
  );
}

async function listClusterTables(target: CopiedDatabase): Promise<string[]> {
  const rows = await target.countClusterRows();
  return Object.entries(rows).flatMap(([table, count]) => (count > 0 ? [table] : []));
}

async function start(
  { names, source, target }: Pick<CopyOptions, 'names' | 'source' | 'target'>,
  mark: string | undefined,
): Promise<CopyProgress> {
  const sourceMark = mark ?? randomUUID();
  if (mark === undefined) await source.write(() => writeSourceMark(sourceMark));
  const progress = { ...names, sourceMark, schema: SCHEMA, table: undefined, lastKey: undefined };
  await target.write(() => writeProgress(progress));
  return progress;
}

/** @throws CopyError */
function checkSame(
  found: CopyProgress,
  { mark, names }: { mark: string | undefined; names: CopyOptions['names'] },
): CopyProgress {
  const startAgain = 'Empty the target, and start the copy again';
  if (found.schema !== SCHEMA) {
    throw new CopyError(
      'target',
      `has an unfinished copy that another version of millrace began. ${startAgain}`,
    );
  }
  if (found.sourceMark === mark) return found;
  throw new CopyError(
    'target',
    found.source === names.source
      ? `has an unfinished copy, and a platform has used ${names.source} since. ${startAgain}`
      : `has an unfinished copy of ${found.source}. Name that source. Or empty the target, and start the copy again`,
  );
}

async function copyRows(
  options: CopyOptions,
  tables: readonly TableShape[],
  { lastKey, table: lastTable }: CopyProgress,
): Promise<void> {
  const { onProgress, source, target } = options;
  const total = sum(await countIn(source, tables));
  let copied = sum(await countIn(target, tables));
  const first = tables.findIndex(({ name }) => name === lastTable);
  for (const table of tables.slice(Math.max(first, 0))) {
    const after = table.name === lastTable && lastKey !== undefined ? parseKey(lastKey) : undefined;
    for await (const rows of copyTable(options, table, after)) {
      copied += rows;
      onProgress({ table: table.name, copied, total });
    }
  }
}

/** Yields the number of rows of each batch. */
async function* copyTable(
  { bounds, signal, source, target }: CopyOptions,
  table: TableShape,
  start: Key | undefined,
): AsyncGenerator<number, void> {
  let after = start;
  while (!signal.aborted) {
    const from = after;
    const read = await source.read(() => readRows(table, from, bounds));
    const rows = source.loadParts(table, read);
    const last = rows.at(-1);
    if (!last) return;
    const key = readKey(last, table);
    await target.write(function* () {
      yield* insertRows(table, rows);
      yield* moveProgress(table.name, JSON.stringify(key));
    });
    after = key;
    yield rows.length;
  }
}

/** Keys are texts and numbers. */
function parseKey(text: string): Key {
  const parsed: unknown = JSON.parse(text);
  const isValue = (value: unknown): value is SqlValue =>
    typeof value === 'string' || typeof value === 'number';
  if (Array.isArray(parsed) && parsed.every(isValue)) return parsed;
  throw new CopyError('target', `has a note of its copy that cannot be read: ${text}`);
}

async function countAll(
  { source, target }: CopyOptions,
  tables: readonly TableShape[],
): Promise<CopiedTable[]> {
  const [inSource, inTarget] = [await countIn(source, tables), await countIn(target, tables)];
  return tables.map(({ name }, index) => ({
    table: name,
    source: inSource[index] ?? 0,
    target: inTarget[index] ?? 0,
  }));
}

async function countIn(database: CopiedDatabase, tables: readonly TableShape[]): Promise<number[]> {
  const counts: number[] = [];
  for (const table of tables) counts.push(await database.read(() => countRows(table)));
  return counts;
}

function describeDifference(differing: readonly CopiedTable[]): string {
  const each = differing.map(
    (count) => `${count.table} has ${count.target} rows instead of ${count.source}`,
  );
  return `differs from the source: ${each.join(', ')}. Another program has written to one of them. Empty the target, and start the copy again`;
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
