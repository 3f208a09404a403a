// Options of a container, shared by pods and templates.
import { integer, list, text, UsageError } from '../options.ts';

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
    ...{ name, image, args, disk, registry },
    env: env.length > 0 ? Object.fromEntries(env.map(readVariableFlag)) : undefined,
    ports: port.length > 0 ? port : undefined,
  };
}

function readVariableFlag(given: string): [name: string, value: string] {
  const at = given.indexOf('=');
  if (at > 0) return [given.slice(0, at), given.slice(at + 1)];
  throw new UsageError(`--env: must be NAME=VALUE, got ${JSON.stringify(given)}`);
}
