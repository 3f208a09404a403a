// Deploys a version of an endpoint's handler: uses one that the platform has, or uploads it, and follows the
// rollout.
import type { Platform } from '../../client/platform-client.ts';
import { ApiError, UnreachableError } from '../../client.ts';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import type { VersionRecord } from '../../wire/resources/version.ts';
import { CommandError } from '../command.ts';
import { formatSize, type StatusLine } from '../output.ts';
import { callPlatform } from '../resources/client-options.ts';
import { listenForStop } from '../stop-signals.ts';
import type { PackedProject } from './package-files.ts';
import { followRollout, isUnderWay, type RolloutEnd, type RolloutGoal } from './rollout.ts';

/** How long the platform may be unreachable while a rollout is followed, ms. */
const OUTAGE_MS = 60_000;

export interface Upload {
  packed: PackedProject;
  entry: string;
  message: string | undefined;
}

/** `running`: nothing to do. `followed`: its rollout is under way. `kept`: the platform has it already. */
type Choice = { kind: 'running' | 'followed' | 'kept'; version: number };

/** Finds a version with the same files and the same handler. */
export async function findSame(
  platform: Platform,
  endpoint: EndpointRecord,
  { entry, packed }: Pick<Upload, 'entry' | 'packed'>,
): Promise<Choice | undefined> {
  const same: VersionRecord[] = [];
  for await (const version of platform.endpoints.versions(endpoint.id).list()) {
    if (version.sha256 === packed.sha256 && version.entry === entry) same.push(version);
  }
  return chooseSame(
    endpoint,
    same.map(({ version }) => version),
  );
}

/** `same`: the versions with the same content. */
export function chooseSame(
  { rollout, version }: Pick<EndpointRecord, 'rollout' | 'version'>,
  same: readonly number[],
): Choice | undefined {
  if (rollout && isUnderWay(rollout)) {
    if (same.includes(rollout.version)) return { kind: 'followed', version: rollout.version };
  } else if (version !== null && same.includes(version)) return { kind: 'running', version };
  const [newest] = same.toSorted((one, other) => other - one);
  return newest === undefined ? undefined : { kind: 'kept', version: newest };
}

export async function uploadVersion(
  platform: Platform,
  endpoint: EndpointRecord,
  { entry, message, packed }: Upload,
  status: StatusLine,
): Promise<VersionRecord> {
  const size = packed.bytes.length;
  status.show(`uploading ${formatSize(size)}`);
  // Elsewhere each change would be a line of its own.
  const onSent = status.isTerminal
    ? (sent: number) => status.show(describeUpload(sent, size))
    : undefined;
  const versions = platform.endpoints.versions(endpoint.id);
  const { bytes: archive, sha256 } = packed;
  const version = await versions.upload({ archive, entry, sha256, message }, { onSent });
  status.note(`uploaded version ${version.version}, ${formatSize(version.bytes)}`);
  return version;
}

export function describeUpload(sent: number, size: number): string {
  if (sent >= size) return `uploaded ${formatSize(size)}, the platform checks the archive`;
  const percent = Math.floor((100 * sent) / size);
  return `uploading ${formatSize(sent)} of ${formatSize(size)} (${percent} %)`;
}

/** Starts the rollout. @throws CommandError if the platform shows none */
export async function startRollout(
  platform: Platform,
  endpoint: EndpointRecord,
  { timeout, version }: { version: number; timeout: number | undefined },
): Promise<RolloutGoal> {
  const { rollout } = await platform.endpoints.versions(endpoint.id).deploy(version, { timeout });
  if (rollout) return { version, startedAt: rollout.startedAt };
  throw new CommandError(`the platform has not started a rollout of version ${version}`);
}

/** Follows the rollout until it ends or a signal comes; short outages of the platform do not end it. */
export async function follow(
  platform: Platform,
  endpoint: EndpointRecord,
  goal: RolloutGoal,
  status: StatusLine,
): Promise<RolloutEnd> {
  const signals = listenForStop();
  let answeredAt = Date.now();
  let last = endpoint;
  try {
    return await followRollout({
      goal,
      interrupted: signals.first,
      show: (text) => status.show(text),
      read: async () => {
        try {
          last = await platform.endpoints.get(endpoint.id);
          answeredAt = Date.now();
        } catch (error) {
          const isOutage = error instanceof UnreachableError || isTemporary(error);
          if (!isOutage || Date.now() - answeredAt > OUTAGE_MS) throw error;
          status.show('the platform does not respond, trying again');
        }
        return last;
      },
    });
  } finally {
    status.clear();
    signals.release();
  }
}

function isTemporary(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 503 || error.status === 429);
}

/** Runs calls to the platform; refusals become errors without a stack, also after a status line. */
export async function withStatus<T>(status: StatusLine, act: () => Promise<T>): Promise<T> {
  try {
    return await callPlatform(act);
  } finally {
    status.clear();
  }
}
