// Reads reports of quotas, and chooses projects.
import { expect, it } from 'vitest';
import {
  chooseProject,
  FIRST_PROJECT,
  readProject,
  readReport,
} from '../../../../src/engine/quota/project-report.ts';

it('reads use and limit of each project', () => {
  const report = [
    'Project,BlockStatus,FileStatus,BlockUsed,BlockSoftLimit,BlockHardLimit,BlockGrace,FileUsed',
    '#0,ok,ok,13,0,0,,2,0,0,',
    '#1500000000,hard,ok,20481,0,10240,,2,0,0,',
    '',
  ].join('\n');
  expect([...readReport(report)]).toEqual([
    [0, { usedBytes: 13_312, limitBytes: 0 }],
    [1_500_000_000, { usedBytes: 20_972_544, limitBytes: 10_485_760 }],
  ]);
});

it('reads the project of a folder, and ignores those of others', () => {
  expect(readProject('1500000000 --------------e----P-- /data/v\n')).toBe(1_500_000_000);
  expect(readProject('    7 -------------------P-- /data/v\n')).toBeUndefined();
  expect(readProject('    0 ---------------------- /data/v\n')).toBeUndefined();
});

it('chooses the same project for a folder, and the next one if another folder has it', () => {
  const first = chooseProject('/data/a', new Set());
  expect(first).toBeGreaterThanOrEqual(FIRST_PROJECT);
  expect(chooseProject('/data/a', new Set())).toBe(first);
  expect(chooseProject('/data/a', new Set([first]))).toBe(
    FIRST_PROJECT + ((first - FIRST_PROJECT + 1) % FIRST_PROJECT),
  );
});
