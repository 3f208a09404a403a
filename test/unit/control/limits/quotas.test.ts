import { expect, it } from 'vitest';
import { ResourceCount } from '../../../../src/control/limits/quotas.ts';

it('reserves a place until its resource is counted, and releases it once', () => {
  const count = new ResourceCount({ quota: 'pods', limit: 4, countOf: () => 1 });
  const [release] = [count.reserve('ann'), count.reserve('ann'), count.reserve('ann')];
  expect(() => count.reserve('ann')).toThrow(/quota of 4 pods/);
  expect(() => count.reserve('bob')).not.toThrow();
  release();
  count.reserve('ann');
  expect(() => count.reserve('ann')).toThrow(/quota of 4 pods/);
});
