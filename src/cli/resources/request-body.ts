// Composes a request body from a JSON file and from options, which override the file; the options of containers, which pods
// and templates share.
import { readFileSync } from 'node:fs';
import { integer, list, text, UsageError } from '../options.ts';

export const bodyFileOption = text({
  placeholder: 'FILE',
  help: 'JSON file of the request body; - reads standard input; other options override it',
});

const STANDARD_INPUT = 0;

/** Omits undefined members. @throws UsageError */
export function composeBody(
  file: string | undefined,
  flags: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  const read = file === undefined ? {} : readObjectFile('--file', file);
  const body = { ...read, ...Object.fromEntries(given) };
  if (Object.keys(body).length > 0) return body;
  throw new UsageError('the request body is empty; give options or --file');
}

/** Reads a JSON object from a file, or from standard input for `-`. @throws UsageError naming the flag */
export function readObjectFile(flag: string, file: string): object {
  return parseObject(`${flag}: ${file}`, readText(flag, file));
}

/** @throws UsageError naming the source */
export function parseObject(source: string, json: string): object {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new UsageError(`${source} is not JSON: ${describe(error)}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError(`${source} must be a JSON object`);
}

function readText(flag: string, file: string): string {
  try {
    const text = readFileSync(file === '-' ? STANDARD_INPUT : file, 'utf8');
    // JSON has no byte order mark, but some editors write one.
    return text.replace(/^\ufeff/, '');
  } catch (error) {
    throw new UsageError(`${flag}: ${file} cannot be read: ${describe(error)}`);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export const containerOptions = {
  name: text({ placeholder: 'NAME', help: 'name, 1 to 200 characters' }),
  image: text({ placeholder: 'IMAGE', help: 'container image' }),
  args: text({
    placeholder: 'ARGS',
    help: "process engine: program and its arguments; Docker and Kubernetes: arguments of the image's entrypoint; write --args=… if they start with -",
  }),
  env: list({ placeholder: 'NAME=VALUE', help: 'environment variable of the container' }),
  port: list({
    placeholder: 'PORT/PROTOCOL',
    help: 'port of the container, such as 8000/http or 22/tcp',
  }),
  disk: integer({ min: 1, max: 65_536, placeholder: 'GB', help: 'size of the container disk, GB' }),
  registry: text({
    placeholder: 'ID',
    help: 'ID or name of the registry whose login pulls the image, from `millrace registries list`',
  }),
} as const;

/** Lists that an update replaces as a whole. */
export const replacedListOptions = {
  env: {
    ...containerOptions.env,
    help: 'environment variable; the given variables replace all earlier ones',
  },
  port: {
    ...containerOptions.port,
    help: 'port, such as 8000/http; the given ports replace all earlier ones',
  },
} as const;

/** Marks options that a new resource needs from the command line or from --file. */
export function mark<T>(option: T & { help: string }, note = 'required, here or in --file'): T {
  return { ...option, help: `${option.help}; ${note}` };
}

interface ContainerValues {
  name: string | undefined;
  image: string | undefined;
  args: string | undefined;
  env: readonly string[];
  port: readonly string[];
  disk: number | undefined;
  registry: string | undefined;
}

/** Returns members of the body; undefined for flags that are not given. @throws UsageError */
export function readContainerFlags(values: ContainerValues): Record<string, unknown> {
  const { args, disk, env, image, name, port, registry } = values;
  return {
    name,
    image,
    args,
    disk,
    registry,
    env: env.length > 0 ? Object.fromEntries(env.map(readVariableFlag)) : undefined,
    ports: port.length > 0 ? port : undefined,
  };
}

function readVariableFlag(given: string): [name: string, value: string] {
  const at = given.indexOf('=');
  if (at > 0) return [given.slice(0, at), given.slice(at + 1)];
  throw new UsageError(`--env: must be NAME=VALUE, got ${JSON.stringify(given)}`);
}
