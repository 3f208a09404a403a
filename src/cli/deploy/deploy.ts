// `millrace deploy` packs a handler's project, uploads it as a new version, and rolls it out; --list prints the versions.
// `millrace rollback` deploys an earlier version again.
import { escapeLine } from '../../base/text/printable.ts';
import type { Platform } from '../../client/platform-client.ts';
import type { EndpointRecord, Rollout } from '../../wire/resources/endpoint.ts';
import type { VersionRecord } from '../../wire/resources/version.ts';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag, type OptionValues, text, UsageError } from '../options.ts';
import {
  formatSize,
  formatTable,
  print,
  printNote,
  readTableWidth,
  StatusLine,
} from '../output.ts';
import { callPlatform, clientOptions, connectPlatform } from '../resources/client-options.ts';
import { checkLoads, describePackage, type PackedProject, packProject } from './package-files.ts';
import { chooseName, findProject, needName } from './project.ts';
import {
  DEPLOY_EXIT_CODES,
  findInput,
  findSame,
  finish,
  follow,
  isUnderWay,
  nameOption,
  type RolloutGoal,
  rolloutOptions,
  startRollout,
  type Upload,
  uploadVersion,
  withStatus,
} from './rollout.ts';
import {
  changeEndpoint,
  createEndpoint,
  findEndpoint,
  needEndpoint,
  readSettings,
  resolveNames,
  targetOptions,
} from './target.ts';

const options = {
  name: nameOption,
  message: text({ placeholder: 'TEXT', help: 'what is new, for the list of versions' }),
  root: text({
    placeholder: 'DIR',
    help: 'folder to pack; default: that of the nearest package.json above the handler, else its own',
  }),
  dryRun: flag({ help: 'list the files, check that the handler loads, and send nothing' }),
  list: flag({ help: "list the endpoint's versions instead" }),
  force: flag({ help: 'upload and deploy even if the same files are running' }),
  noCheck: flag({ help: 'do not load the handler on this machine first' }),
  ...rolloutOptions,
  ...targetOptions,
  ...clientOptions,
};

export const deployCommand = defineCommand({
  name: 'millrace deploy',
  description: [
    "Packs the handler's project, uploads it as a new version of the endpoint, and replaces the workers. First " +
      'one worker installs the version and loads the handler. If it cannot, the earlier version keeps running.',
    'An endpoint that does not exist is created. For one that exists, the options of its settings change them ' +
      'before the version is deployed.',
    'The archive has the files of the project without those that .millraceignore names, or else .gitignore. ' +
      'It never has node_modules, .git, the data of a platform or a file of `serve --key-file`, and has .env*, ' +
      '.npmrc, *.pem and *.key only if a line of .millraceignore with ! names them. Packages of a workspace, and those that ' +
      'package.json names with a path, are in the archive too. The platform installs the other packages from ' +
      'package-lock.json, without install scripts.',
  ],
  positionals: [{ name: '[handler]', help: 'handler module, .ts or .js; required without --list' }],
  options,
  examples: [
    'millrace deploy handler.ts',
    'millrace deploy src/handler.ts --name chat --message "Answer in German" --workers-max 4',
    'millrace deploy handler.ts --network-volume models:/models',
    'millrace deploy handler.ts --dry-run',
    'millrace deploy --list --name chat',
  ],
  exitCodes: DEPLOY_EXIT_CODES,
  run,
});

type Values = OptionValues<typeof options>;

async function run({ positionals, values }: ParsedArguments<typeof options>): Promise<number> {
  if (values.list) return listVersions(positionals, values);
  const project = findProject(positionals, values.root);
  const name = chooseName(values.name, project);
  // Wrong settings are found before the files are packed.
  const given = readSettings(values);
  const packed = await packProject(project);
  printNote(`${describePackage(packed, { all: values.dryRun })}\n`);
  if (!values.noCheck) await checkLoads(packed);
  if (values.dryRun) {
    if (values.json) void print(`${JSON.stringify(describeDryRun(name, packed))}\n`);
    return EXIT.ok;
  }
  const { platform, ...target } = connectPlatform(values);
  const status = new StatusLine();
  return withStatus(status, async () => {
    const settings = await resolveNames(platform, given);
    const found = await findEndpoint(platform, name);
    let endpoint = found ?? (await createEndpoint(platform, name, settings));
    if (!found) status.note(`created endpoint ${name} (${endpoint.id})`);
    if (found) {
      const { changed, ...after } = await changeEndpoint(platform, endpoint, settings);
      if (changed.length > 0) status.note(`changed ${changed.join(', ')} of ${name}`);
      endpoint = after.endpoint;
    }
    const upload = { packed, entry: packed.layout.entry, message: values.message };
    const { goal, kind } = await begin({ platform, endpoint, upload, status, values });
    const isWatched = kind === 'rollout' && !values.noFollow;
    const end = isWatched
      ? await follow(platform, endpoint, goal, status)
      : ({ kind: kind === 'rollout' ? 'started' : 'unchanged' } as const);
    endpoint = isWatched ? await platform.endpoints.get(endpoint.id) : endpoint;
    const input = await findInput(project.handler, { ...target, name });
    const result = { endpoint, name, version: goal.version, end, target };
    return finish({ ...result, json: values.json, example: { input, given: values } });
  });
}

interface Beginning {
  platform: Platform;
  endpoint: Awaited<ReturnType<typeof createEndpoint>>;
  upload: Upload;
  status: StatusLine;
  values: Pick<Values, 'force' | 'timeout'>;
}

/** Starts the rollout, or finds that none is needed or that it is under way. */
async function begin({
  endpoint,
  platform,
  status,
  upload,
  values,
}: Beginning): Promise<{ kind: 'unchanged' | 'rollout'; goal: RolloutGoal }> {
  const same = values.force ? undefined : await findSame(platform, endpoint, upload);
  if (same?.kind === 'running') {
    return { kind: 'unchanged', goal: { version: same.version, startedAt: '' } };
  }
  if (same?.kind === 'followed') {
    const { version } = same;
    status.note(`version ${version} has the same files and is being deployed`);
    return { kind: 'rollout', goal: { version, startedAt: endpoint.rollout?.startedAt ?? '' } };
  }
  if (same) status.note(`version ${same.version} has the same files`);
  const { version } = same ?? (await uploadVersion(platform, endpoint, upload, status));
  const { timeout } = values;
  return { kind: 'rollout', goal: await startRollout(platform, endpoint, { version, timeout }) };
}

function describeDryRun(name: string, packed: PackedProject): object {
  const { bytes, files, layout, sha256, unpackedBytes } = packed;
  const { entry, root: folder } = layout;
  return { name, folder, entry, bytes: bytes.length, unpackedBytes, sha256, files };
}

/** @throws UsageError, CommandError */
async function listVersions(positionals: readonly string[], values: Values): Promise<number> {
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

const rollbackOptions = { name: nameOption, ...rolloutOptions, ...clientOptions };

export const rollbackCommand = defineCommand({
  name: 'millrace rollback',
  description: [
    'Redeploys an earlier version. If it does not load, the running version keeps running. ' +
      '`millrace deploy --list` prints the versions.',
  ],
  positionals: [
    {
      name: '[version]',
      help: 'number of the version; default: the one that ran before; if a deployment has failed since, the newest one with a smaller number',
    },
  ],
  options: rollbackOptions,
  examples: ['millrace rollback --name chat', 'millrace rollback 3 --name chat'],
  exitCodes: DEPLOY_EXIT_CODES,
  run: runRollback,
});

async function runRollback({
  positionals,
  values,
}: ParsedArguments<typeof rollbackOptions>): Promise<number> {
  const given = readVersion(positionals);
  const name = needName(values.name);
  const { json, noFollow, timeout } = values;
  const { platform, ...target } = connectPlatform(values);
  const status = new StatusLine();
  return withStatus(status, async () => {
    let endpoint = await needEndpoint(platform, name);
    const versions = platform.endpoints.versions(endpoint.id);
    const known = await Array.fromAsync(versions.list(), (each) => each.version);
    if (given !== undefined && !known.includes(given)) {
      const how = `\`millrace deploy --list --name ${name}\` prints the versions`;
      throw new CommandError(`${name} has no version ${given}; ${how}`);
    }
    const version = given ?? chooseEarlier(endpoint, known);
    const common = { name, version, target, json };
    if (version === endpoint.version && !isUnderWay(endpoint.rollout)) {
      return finish({ ...common, endpoint, end: { kind: 'unchanged' } });
    }
    const goal = await startRollout(platform, endpoint, { version, timeout });
    if (noFollow) return finish({ ...common, endpoint, end: { kind: 'started' } });
    const end = await follow(platform, endpoint, goal, status);
    endpoint = await platform.endpoints.get(endpoint.id);
    return finish({ ...common, endpoint, end });
  });
}

/** @throws UsageError */
function readVersion([given, surplus]: readonly string[]): number | undefined {
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
  if (given === undefined) return undefined;
  if (/^[1-9]\d{0,8}$/.test(given)) return Number(given);
  throw new UsageError(`${given}: a version is a whole number from 1`);
}

/**
 * While a rollout is under way, the version that it replaces; else the one that ran before the running one. If another
 * deployment has failed since, the platform does not know that one: then the newest one with a smaller number.
 * @throws CommandError if there is none
 */
export function chooseEarlier(
  { name, rollout, version }: Pick<EndpointRecord, 'name' | 'rollout' | 'version'>,
  known: readonly number[],
): number {
  if (version === null) throw new CommandError(`${name} runs no version`);
  if (isUnderWay(rollout)) return version;
  const isOfRunning = rollout?.state === 'DONE' && rollout.version === version;
  const smaller = known.filter((each) => each < version);
  const earlier = isOfRunning ? rollout.from : smaller.length > 0 ? Math.max(...smaller) : null;
  if (earlier !== null) return earlier;
  throw new CommandError(`no version of ${name} ran before version ${version}; give a number`);
}
