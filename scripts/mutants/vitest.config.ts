// The repository's vitest configuration, for runs against a mutant: one file at a time, in the given order.
import { mergeConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import base from '../../vitest.config.ts';

const order = (process.env['MUTANT_TESTS'] ?? '').split(',');

class NearestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) =>
      order.findIndex((path) => moduleId.endsWith(`/${path}`));
    return files.toSorted((a, b) => rank(a) - rank(b));
  }
}

const root = new URL('../..', import.meta.url).pathname;

// The script itself ends what a run leaves behind: no check for leftovers, which waits for them.
const { globalSetup: _check, ...test } = base.test ?? {};

export default mergeConfig(
  { ...base, test },
  {
    root,
    cacheDir: `${root}/.vite`,
    test: {
      maxWorkers: 1,
      fsModuleCachePath: `${root}/.vite/modules`,
      sequence: { sequencer: NearestFirst },
    },
  },
);
