// `millrace deploy --list`: prints the versions of an endpoint.
import { escapeLine } from '../../base/text/printable.ts';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import type { Rollout } from '../../wire/resources/rollout.ts';
import type { VersionRecord } from '../../wire/resources/version.ts';
import { EXIT } from '../command.ts';
import { UsageError } from '../options.ts';
import { formatTable, print, readTableWidth } from '../output.ts';
import { callPlatform, connectPlatform, type GivenTarget } from '../resources/client-options.ts';
import { formatSize } from './byte-size.ts';
import { needName } from './project.ts';
import { needEndpoint } from './target.ts';

interface ListValues extends GivenTarget {
  name: string | undefined;
  json: boolean;
}

/** @throws UsageError, CommandError */
export async function listVersions(
  positionals: readonly string[],
  values: ListValues,
): Promise<number> {
  const [surplus] = positionals;
  if (surplus !== undefined) {
    throw new UsageError(`${surplus}: unexpected argument; --list takes --name NAME`);
  }
  const name = needName(values.name);
  const { platform } = connectPlatform(values);
  const { endpoint, versions } = await callPlatform(async () => {
    const found = await needEndpoint(platform, name);
    const all = await Array.fromAsync(platform.endpoints.versions(found.id).list());
    return { endpoint: found, versions: all };
  });
  const { rollout, version: running } = endpoint;
  if (values.json) void print(`${JSON.stringify({ running, rollout, versions })}\n`);
  else void print(`${formatVersions(endpoint, versions)}\n`);
  return EXIT.ok;
}

export function formatVersions(
  endpoint: Pick<EndpointRecord, 'name' | 'rollout' | 'version'>,
  versions: readonly VersionRecord[],
): string {
  if (versions.length === 0) return `${endpoint.name} has no versions`;
  const rows = versions.map((each) => [
    ...[String(each.version), describeState(endpoint, each.version), each.createdAt],
    ...[String(each.files), formatSize(each.bytes), each.entry, each.message ?? ''],
  ]);
  const titles = ['VERSION', 'STATE', 'CREATED', 'FILES', 'SIZE', 'HANDLER', 'MESSAGE'];
  const table = formatTable(titles, rows, readTableWidth({ wide: false }));
  const { rollout } = endpoint;
  return rollout?.state === 'FAILED' ? `${table}\n\n${describeFailure(rollout)}` : table;
}

function describeFailure({ endedAt, reason, version }: Rollout): string {
  const when = endedAt === null ? '' : ` at ${endedAt}`;
  return escapeLine(
    `version ${version} failed${when}: ${reason ?? 'the platform gives no reason'}`,
  );
}

function describeState(
  { rollout, version: running }: Pick<EndpointRecord, 'rollout' | 'version'>,
  version: number,
): string {
  if (version === running) return 'running';
  if (rollout?.version !== version) return '-';
  return rollout.state === 'DONE' ? '-' : rollout.state.toLowerCase();
}
