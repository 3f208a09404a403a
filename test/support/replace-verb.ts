// Replaces verbs of a transaction or reader, for tests that watch what an operation asks.
import type { Reader } from '../../src/store/store.ts';

export function replaceVerb<Tx extends Reader>(tx: Tx, verbs: Partial<Tx>): Tx {
  // The methods read private members, so they must be called on the transaction itself.
  return new Proxy(tx, {
    get(target, name) {
      const replaced: unknown = Reflect.get(verbs, name);
      if (replaced) return replaced;
      const member: unknown = Reflect.get(target, name);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}
