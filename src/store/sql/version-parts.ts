// Stores the archives of versions in parts, rows of bounded size, each written in a commit of its own.
import type { Step, VersionKey } from '../store.ts';
import { bytes, number, text } from './rows.ts';

/** Replaces the part that an interrupted upload of the same number has left. */
export function* insertVersionPart(
  { endpointId, version }: VersionKey,
  index: number,
  part: Uint8Array,
): Step<void> {
  yield {
    sql: `insert into version_part (endpoint_id, version, at, bytes) values (?, ?, ?, ?)
      on conflict (endpoint_id, version, at) do update set bytes = excluded.bytes`,
    params: [endpointId, version, index, part],
  };
}

export function* readVersionPart(
  { endpointId, version }: VersionKey,
  index: number,
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: 'select bytes from version_part where endpoint_id = ? and version = ? and at = ?',
    params: [endpointId, version, index],
  };
  return row && bytes(row, 'bytes');
}

export function* listVersionsWithParts(): Step<VersionKey[]> {
  const rows = yield {
    sql: `select distinct endpoint_id, version from version_part order by endpoint_id, version`,
    params: [],
  };
  return rows.map((row) => ({
    endpointId: text(row, 'endpoint_id'),
    version: number(row, 'version'),
  }));
}

export function* countVersionParts({ endpointId, version }: VersionKey): Step<number> {
  const [row] = yield {
    sql: 'select count(*) as parts from version_part where endpoint_id = ? and version = ?',
    params: [endpointId, version],
  };
  return row ? number(row, 'parts') : 0;
}

/** The last parts first: then the first one still names what is left. */
export function* deleteVersionParts(
  { endpointId, version }: VersionKey,
  limit: number,
): Step<void> {
  const params = [endpointId, version];
  yield {
    sql: `delete from version_part where endpoint_id = ? and version = ? and at in (
      select at from version_part where endpoint_id = ? and version = ? order by at desc limit ?)`,
    params: [...params, ...params, limit],
  };
}
