// Composes a request body from a JSON file, and from the options of a resource's fields, which override the file.
// wire/resources/fields.ts has the fields.
import type { Field, Fields } from '../../wire/resources/field.ts';
import {
  choice,
  decimal,
  flagName,
  integer,
  list,
  type Option,
  rate,
  readNamedFile,
  text,
  UsageError,
} from '../options.ts';

export const bodyFileOption = text({
  placeholder: 'FILE',
  help: 'JSON file of the request body; - reads standard input; other options override it',
});

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
  // JSON has no byte order mark, but some editors write one.
  const json = readNamedFile(flag, file, 'stdin').replace(/^\ufeff/, '');
  return parseObject(`${flag}: ${file}`, json);
}

/** @throws UsageError naming the source */
function parseJson(source: string, json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new UsageError(
      `${source} is not JSON: ${error instanceof Error ? error.message : error}`,
    );
  }
}

/** @throws UsageError naming the source */
export function parseObject(source: string, json: string): object {
  const value = parseJson(source, json);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError(`${source} must be a JSON object`);
}

/** `deploy` updates an endpoint, or creates one, and takes no file. */
type BodyVerb = 'create' | 'update' | 'deploy';

/** An option for each field that a flag can set. */
export function fieldOptions(fields: Fields, verb: BodyVerb): Record<string, Option<unknown>> {
  const options = listFlags(fields)
    .filter(({ field }) => verb === 'create' || !field.isFixed)
    .map(({ field, flag }) => [flag, optionOf(field, `${helpOf(field)}${noteOf(field, verb)}`)]);
  return Object.fromEntries(options);
}

/** Options of members of a body that have another name: `{ templateId: 'template' }`. */
export function flagsOf(fields: Fields): Record<string, string> {
  return Object.fromEntries(listFlags(fields).map(({ flag, name }) => [name, flag]));
}

/** Members of the body; undefined for flags that are not given. @throws UsageError */
export function readFields(
  fields: Fields,
  values: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const members = listFlags(fields).map(({ field, flag, name }) => {
    const value = values[flag];
    if (field.kind === 'switch' && value !== undefined) return [name, value === 'true'];
    if ((field.kind === 'retry' || field.kind === 'weights') && typeof value === 'string') {
      return [name, parseObject(flagName(flag), value)];
    }
    if (field.kind === 'windows' && typeof value === 'string') {
      return [name, parseJson(flagName(flag), value)];
    }
    if (!Array.isArray(value)) return [name, value];
    if (value.length === 0) return [name, undefined];
    return [name, field.kind === 'variables' ? readVariables(flag, value) : value];
  });
  return Object.fromEntries(members);
}

interface FieldFlag {
  name: string;
  flag: string;
  field: Field;
}

function listFlags(fields: Fields): FieldFlag[] {
  return Object.entries(fields).flatMap(([name, field]) => {
    const { flag = name } = field;
    return flag === null ? [] : [{ name, flag, field }];
  });
}

/** Values of the flag of a switch: an update can turn it on and off. */
const SWITCH = ['true', 'false'];

function optionOf(field: Field, help: string): Option<unknown> {
  const { placeholder } = field;
  const described = { help, ...(placeholder !== undefined && { placeholder }) };
  switch (field.kind) {
    case 'integer':
      return integer({ ...described, min: field.min, max: field.max });
    case 'number':
      return decimal({ ...described, min: field.min, max: field.max });
    case 'choice':
      return choice({ ...described, choices: field.choices });
    case 'switch':
      return choice({ ...described, choices: SWITCH });
    case 'rate':
      return rate(described);
    case 'list':
    case 'variables':
      return list({ placeholder: 'TEXT', ...described });
    default:
      return text({ placeholder: 'NAME', ...described });
  }
}

/** Help texts begin in lower case, unless with a proper name or an abbreviation. */
function helpOf({ help, text: phrase }: Field): string {
  if (help !== undefined || !/^[A-Z][a-z ]/.test(phrase)) return help ?? phrase;
  return phrase.charAt(0).toLowerCase() + phrase.slice(1);
}

function noteOf({ default: value, kind, null: none, optional }: Field, verb: BodyVerb): string {
  const isList = kind === 'list' || kind === 'variables';
  if (verb !== 'create') {
    if (isList) return '; replaces all earlier ones';
    return none === undefined || verb === 'deploy' ? '' : `; null in --file: ${none}`;
  }
  if (optional !== undefined) return `; default: ${optional}`;
  if (value === undefined) return kind === 'variables' ? '' : '; required, here or in --file';
  const shown = value === null ? none : String(value);
  return shown ? `; default: ${shown}` : '';
}

function readVariables(flag: string, given: readonly unknown[]): Record<string, string> {
  const pairs = given.map((each) => {
    const pair = String(each);
    const at = pair.indexOf('=');
    if (at > 0) return [pair.slice(0, at), pair.slice(at + 1)];
    throw new UsageError(`${flagName(flag)}: must be NAME=VALUE, got ${JSON.stringify(pair)}`);
  });
  return Object.fromEntries(pairs);
}
