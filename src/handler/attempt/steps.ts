// Recognises handlers that stream: their return value is driven step by step.

export interface Steps {
  next(): Promise<IteratorResult<unknown>> | IteratorResult<unknown>;
  return?(): unknown;
}

/** Generators, iterators and readable streams are streams. Arrays and texts are values. */
export function findSteps(answer: unknown): Steps | undefined {
  if (typeof answer !== 'object' || answer === null) return undefined;
  if (isAsyncIterable(answer)) return answer[Symbol.asyncIterator]();
  return isSteps(answer) ? answer : undefined;
}

function isAsyncIterable(value: object): value is AsyncIterable<unknown> {
  return Symbol.asyncIterator in value && typeof value[Symbol.asyncIterator] === 'function';
}

function isSteps(value: object): value is Steps {
  return 'next' in value && typeof value.next === 'function';
}
