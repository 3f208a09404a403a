// `millrace rollback`: deploys an earlier version of an endpoint's handler again.
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import { CommandError, defineCommand } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { UsageError } from '../options.ts';
import { StatusLine } from '../output.ts';
import { clientOptions, connectPlatform } from '../resources/client-options.ts';
import { follow, startRollout, withStatus } from './deployment.ts';
import { needName } from './project.ts';
import { DEPLOY_EXIT_CODES, finish, isUnderWay, nameOption, rolloutOptions } from './rollout.ts';
import { needEndpoint } from './target.ts';

const options = { name: nameOption, ...rolloutOptions, ...clientOptions };

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
  options,
  examples: ['millrace rollback --name chat', 'millrace rollback 3 --name chat'],
  exitCodes: DEPLOY_EXIT_CODES,
  run,
});

async function run({ positionals, values }: ParsedArguments<typeof options>): Promise<number> {
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
