// Rows of a database that name parts of files, read from outside of a platform.
import { statSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { number, text } from '../sql/rows.ts';
import { isUsed, splitAt } from '../sql/unused-payloads.ts';
import type { StagedPayload } from '../store.ts';
import type { PayloadFolder } from './payload-files.ts';

const TABLES = [
  { table: 'job_input', kind: 'input' },
  { table: 'job_output', kind: 'output' },
] as const;

export interface FilePart {
  table: (typeof TABLES)[number]['table'];
  payload: StagedPayload;
  /** Key of the row. */
  at: number;
  /** Of the part, in the file. */
  offset: number;
  bytes: number;
}

/** Parts of payloads that jobs have. */
export function listFileParts(database: DatabaseSync): FilePart[] {
  return TABLES.flatMap(({ kind, table }) => {
    const rows = database
      .prepare(
        `select endpoint_id, job_id, at, file_bytes from ${table}
          where file_bytes is not null and ${isUsed(kind)}`,
      )
      .all();
    return rows.map((row) => {
      const at = number(row, 'at');
      const { offset, origin } = splitAt(at);
      const key = { endpointId: text(row, 'endpoint_id'), id: text(row, 'job_id') };
      return {
        table,
        payload: { ...key, kind, origin },
        at,
        offset,
        bytes: number(row, 'file_bytes'),
      };
    });
  });
}

/** Says which files are missing or too short. A platform may run: what it removes meanwhile is no problem. */
export function findLostParts(
  database: DatabaseSync,
  files: Pick<PayloadFolder, 'locate'>,
): string[] {
  const isLost = ({ bytes, offset, payload }: FilePart) => {
    const size = statSync(files.locate(payload), { throwIfNoEntry: false })?.size ?? 0;
    return size < offset + bytes;
  };
  const pathOf = ({ payload }: FilePart) => files.locate(payload);
  const lost = new Set(listFileParts(database).filter(isLost).map(pathOf));
  if (lost.size === 0) return [];
  // A file is removed after its job: a job that is still there had its file when it was not found.
  const still = new Map(listFileParts(database).map((part) => [pathOf(part), part.payload]));
  return [...still]
    .filter(([path]) => lost.has(path))
    .map(
      ([path, { endpointId, id, kind }]) =>
        `the file ${path} with the ${kind} of job ${id} of endpoint ${endpointId} is missing or too short`,
    );
}
