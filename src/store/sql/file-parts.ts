// The parts of uploaded files and of the results of batches. The row of a file is a resource; its parts are never joined
// here.
import type { FileKey, Step } from '../store.ts';
import { bytes, number } from './rows.ts';

/** Replaces the part that an interrupted write of the same number has left. */
export function* insertFilePart(
  { endpointId, id }: FileKey,
  index: number,
  part: Uint8Array,
): Step<void> {
  yield {
    sql: `insert into file_part (endpoint_id, file_id, at, bytes) values (?, ?, ?, ?)
      on conflict (endpoint_id, file_id, at) do update set bytes = excluded.bytes`,
    params: [endpointId, id, index, part],
  };
}

export function* readFilePart(
  { endpointId, id }: FileKey,
  index: number,
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: 'select bytes from file_part where endpoint_id = ? and file_id = ? and at = ?',
    params: [endpointId, id, index],
  };
  return row && bytes(row, 'bytes');
}

export function* countFileParts({ endpointId, id }: FileKey): Step<number> {
  const [row] = yield {
    sql: 'select count(*) as parts from file_part where endpoint_id = ? and file_id = ?',
    params: [endpointId, id],
  };
  return row ? number(row, 'parts') : 0;
}

export function* deleteFileParts({ endpointId, id }: FileKey, limit: number): Step<void> {
  const params = [endpointId, id];
  yield {
    sql: `delete from file_part where endpoint_id = ? and file_id = ? and at in (
      select at from file_part where endpoint_id = ? and file_id = ? order by at desc limit ?)`,
    params: [...params, ...params, limit],
  };
}
