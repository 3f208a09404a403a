// The kinds of patches that the stand-in applies: JSON merge patch (RFC 7396), JSON patch (RFC 6902)
// without move and copy, and strategic merge patch for fields that are not lists of objects.
import { z } from 'zod';
import { badRequest, type Fields, KubeError } from '../objects.ts';

const operationSchema = z.object({
  op: z.enum(['add', 'remove', 'replace', 'test']),
  path: z.string().startsWith('/'),
  value: z.unknown(),
});

/** Changes the target, which is a copy of the object. @throws KubeError */
export function applyPatch(target: Fields, type: string, patch: unknown): Fields {
  if (type === 'application/merge-patch+json') return mergeFields(target, patch);
  if (type === 'application/strategic-merge-patch+json') {
    refuseObjectLists(patch, '');
    return mergeFields(target, patch);
  }
  if (type !== 'application/json-patch+json') {
    throw new KubeError(415, 'UnsupportedMediaType', `the body of the request was in ${type}`);
  }
  const operations = z.array(operationSchema).safeParse(patch);
  if (!operations.success) throw badRequest('error decoding patch');
  for (const operation of operations.data) applyOperation(target, operation);
  return target;
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function mergeFields(target: Fields, patch: unknown): Fields {
  if (!isFields(patch)) throw badRequest('the patch is not an object');
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete target[name];
    else if (isFields(value)) {
      const before = target[name];
      target[name] = mergeFields(isFields(before) ? before : {}, value);
    } else target[name] = value;
  }
  return target;
}

/** The API merges such lists by a key of each type; the stand-in would replace them. */
function refuseObjectLists(value: unknown, path: string): void {
  if (Array.isArray(value) && value.some(isFields)) {
    throw badRequest(`the stand-in merges no lists of objects: use a JSON merge patch for ${path}`);
  }
  if (isFields(value)) {
    for (const [name, part] of Object.entries(value)) refuseObjectLists(part, `${path}/${name}`);
  }
}

function applyOperation(
  target: Fields,
  { op, path, value }: z.infer<typeof operationSchema>,
): void {
  const members = path.slice(1).split('/').map(unescapeMember);
  const last = members.pop() ?? '';
  let parent: unknown = target;
  for (const member of members) {
    parent =
      typeof parent === 'object' && parent !== null ? Reflect.get(parent, member) : undefined;
  }
  if (typeof parent !== 'object' || parent === null) throw misses(path);
  if (op === 'test') {
    if (JSON.stringify(Reflect.get(parent, last)) !== JSON.stringify(value)) throw misses(path);
  } else if (Array.isArray(parent)) {
    const index = last === '-' ? parent.length : Number(last);
    if (op === 'add') parent.splice(index, 0, value);
    else if (index >= parent.length) throw misses(path);
    else parent.splice(index, 1, ...(op === 'replace' ? [value] : []));
  } else if (op === 'add') {
    Reflect.set(parent, last, value);
  } else {
    if (!Object.hasOwn(parent, last)) throw misses(path);
    if (op === 'remove') Reflect.deleteProperty(parent, last);
    else Reflect.set(parent, last, value);
  }
}

function unescapeMember(text: string): string {
  return text.replaceAll('~1', '/').replaceAll('~0', '~');
}

function misses(path: string): KubeError {
  return new KubeError(422, 'Invalid', `the server rejected our request: ${path} does not match`);
}
