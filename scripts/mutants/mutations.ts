// Lists the small changes, called mutants, that can be made to a source text to see whether a test fails.
// Log lines and prose stay as they are: tests compare codes and fields.
import {
  type CallExpression,
  type ExpressionStatement,
  type MemberExpression,
  type Node,
  parseSync,
  visitorKeys,
} from 'oxc-parser';

export type Mutation = {
  /** Offsets into the source text. */
  start: number;
  end: number;
  replacement: string;
};

/** Returns the source text of a node. */
type Quote = (node: Node) => string;

const BINARY: Record<string, readonly string[]> = {
  '<': ['<=', '>='],
  '<=': ['<', '>'],
  '>': ['>=', '<='],
  '>=': ['>', '<'],
  '===': ['!=='],
  '!==': ['==='],
  '+': ['-'],
  '-': ['+'],
  '*': ['/'],
  '/': ['*'],
  '%': ['*'],
};
const LOGICAL: Record<string, string> = { '&&': '||', '||': '&&', '??': '&&' };
const ASSIGNMENT: Record<string, string> = { '+=': '-=', '-=': '+=' };
/** Larger numbers and products of numbers are tuned values; changing them is no fault. */
const LARGEST_COUNT = 10;

export function listMutations(fileName: string, source: string): Mutation[] {
  const { program, errors } = parseSync(fileName, source);
  if (errors.length > 0) throw new Error(`${fileName}: ${errors[0]?.message}`);
  const found: Mutation[] = [];
  const quote: Quote = (node) => source.slice(node.start, node.end);
  walk(program, (node) => {
    found.push(...mutate(node, quote));
  });
  return found;
}

/** Calls `visit` for every node that is code: no types, imports, log lines or tuned numbers. */
function walk(node: Node, visit: (node: Node) => void): void {
  if (isLeftOut(node)) return;
  visit(node);
  for (const child of listChildren(node)) walk(child, visit);
}

function isLeftOut(node: Node): boolean {
  if (/^TS(?!AsExpression|SatisfiesExpression|NonNull)/.test(node.type)) return true;
  if (/^(Import|ExportAll)Declaration$/.test(node.type)) return true;
  if (node.type === 'BinaryExpression') {
    return node.left.type === 'Literal' && node.right.type === 'Literal';
  }
  return node.type === 'CallExpression' && isLogCall(node);
}

function isLogCall({ callee }: CallExpression): boolean {
  if (callee.type !== 'MemberExpression') return false;
  const { object } = callee;
  if (object.type === 'Identifier') return object.name === 'log';
  return (
    object.type === 'MemberExpression' &&
    'name' in object.property &&
    object.property.name === 'log'
  );
}

function listChildren(node: Node): Node[] {
  const keys = (visitorKeys[node.type] ?? []).filter((key) => !isFixed(node, key));
  const values = new Map<string, unknown>(Object.entries(node));
  return keys.flatMap((key) => [values.get(key)].flat()).filter(isNode);
}

/** Property names and the left side of a destructuring stay. */
function isFixed(node: Node, key: string): boolean {
  if (key === 'key') return !('computed' in node && node.computed);
  return (key === 'source' && node.type.startsWith('Export')) || key === 'typeArguments';
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value;
}

function mutate(node: Node, quote: Quote): Mutation[] {
  switch (node.type) {
    case 'BinaryExpression':
      return (BINARY[node.operator] ?? []).map((to) => join(node, to, quote));
    case 'LogicalExpression':
      return [join(node, LOGICAL[node.operator] ?? '||', quote)];
    case 'AssignmentExpression': {
      const to = ASSIGNMENT[node.operator];
      return to === undefined ? [] : [join(node, to, quote)];
    }
    case 'IfStatement':
    case 'ConditionalExpression':
      return [replace(node.test, 'true'), replace(node.test, 'false')];
    case 'WhileStatement':
      return quote(node.test) === 'true' ? [] : [replace(node.test, 'false')];
    case 'UnaryExpression':
      return node.operator === '!' || node.operator === '-'
        ? [replace(node, quote(node.argument))]
        : [];
    case 'UpdateExpression':
      return [replace(node, swapStep(quote(node)))];
    case 'ExpressionStatement':
      return isRemovable(node) ? [replace(node, ';')] : [];
    case 'ReturnStatement':
      return node.argument === null || /^(undefined|true|false)$/.test(quote(node.argument))
        ? []
        : [replace(node, 'return undefined;')];
    case 'ArrayExpression':
      return node.elements.length === 0 ? [] : [replace(node, '[]')];
    case 'MemberExpression':
      return swapExtreme(node, quote);
    case 'Literal':
      return mutateLiteral(node, quote);
    default:
      return [];
  }
}

function replace({ start, end }: Node, replacement: string): Mutation {
  return { start, end, replacement };
}

function join(
  node: Extract<Node, { left: Node; right: Node; operator: string }>,
  operator: string,
  quote: Quote,
): Mutation {
  const { left, right } = node;
  if (node.type !== 'LogicalExpression') {
    return replace(node, `${quote(left)} ${operator} ${quote(right)}`);
  }
  // `??` beside another logical operator needs brackets.
  const side = (part: Node) =>
    part.type === 'LogicalExpression' ? `(${quote(part)})` : quote(part);
  return replace(node, `(${side(left)} ${operator} ${side(right)})`);
}

function swapStep(text: string): string {
  return text.includes('++') ? text.replace('++', '--') : text.replace('--', '++');
}

function isRemovable({ expression }: ExpressionStatement): boolean {
  const inner = expression.type === 'AwaitExpression' ? expression.argument : expression;
  if (inner.type === 'CallExpression') return inner.callee.type !== 'Super' && !isLogCall(inner);
  return inner.type === 'AssignmentExpression';
}

function swapExtreme(node: MemberExpression, quote: Quote): Mutation[] {
  if (quote(node) === 'Math.min') return [replace(node, 'Math.max')];
  return quote(node) === 'Math.max' ? [replace(node, 'Math.min')] : [];
}

function mutateLiteral(node: Extract<Node, { type: 'Literal' }>, quote: Quote): Mutation[] {
  const { value } = node;
  if (typeof value === 'boolean') return [replace(node, String(!value))];
  if (typeof value === 'number' && value <= LARGEST_COUNT)
    return [value + 1, value - 1].map((to) => replace(node, `(${to})`));
  const isProse = typeof value !== 'string' || value === '' || value.includes(' ');
  // A directive, or a string as a statement, is no value.
  return isProse || !/^['"]/.test(quote(node)) ? [] : [replace(node, "''")];
}
