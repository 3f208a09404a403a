// Label and field selectors of lists and watches.
import { badRequest, type KubeObject } from '../objects.ts';

export type Selector = (object: KubeObject) => boolean;

const SET = /^([\w./-]+) +(in|notin) +\(([^)]*)\)$/;
const EQUALITY = /^([\w./-]+) *(==|=|!=) *([\w.-]*)$/;
const EXISTENCE = /^(!?) *([\w./-]+)$/;

/** @throws KubeError 400 */
export function parseLabelSelector(text: string): Selector {
  const requirements = splitRequirements(text).map(parseRequirement);
  return ({ metadata }) => requirements.every((isMet) => isMet(metadata.labels ?? {}));
}

/** At the commas outside of parentheses. */
function splitRequirements(text: string): string[] {
  return text
    .split(/,(?![^(]*\))/)
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

function parseRequirement(text: string): (labels: Record<string, string>) => boolean {
  const [, setKey, setVerb, members] = SET.exec(text) ?? [];
  if (setKey !== undefined) {
    const values = (members ?? '').split(',').map((value) => value.trim());
    const isIn = setVerb === 'in';
    return ({ [setKey]: value }) => (value !== undefined && values.includes(value)) === isIn;
  }
  const [, key, operator, wanted] = EQUALITY.exec(text) ?? [];
  if (key !== undefined) return ({ [key]: value }) => (value === wanted) === (operator !== '!=');
  const [, negation, label] = EXISTENCE.exec(text) ?? [];
  if (label !== undefined) return (labels) => Object.hasOwn(labels, label) === (negation === '');
  throw badRequest(`unable to parse requirement: ${text}`);
}

/** @throws KubeError 400 */
export function parseFieldSelector(text: string): Selector {
  const requirements = splitRequirements(text).map((part) => {
    const [, path, operator, wanted] = /^([\w.]+)(==|=|!=)(.*)$/.exec(part) ?? [];
    if (path === undefined) throw badRequest(`invalid field selector: ${text}`);
    return (object: KubeObject) => (readPath(object, path) === wanted) === (operator !== '!=');
  });
  return (object) => requirements.every((isMet) => isMet(object));
}

/** A missing field is the empty string, as in the API. */
function readPath(object: unknown, path: string): string {
  let value = object;
  for (const member of path.split('.')) {
    value = typeof value === 'object' && value !== null ? Reflect.get(value, member) : undefined;
  }
  return value === undefined || value === null ? '' : String(value);
}
