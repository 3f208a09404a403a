// Finds the file system of a folder, and whether it limits folders.
import { describe, expect, it } from 'vitest';
import {
  chooseProject,
  FIRST_PROJECT,
  findMount,
  findQuotaFault,
  readProject,
  readReport,
} from '../../../src/engine/folder-quotas.ts';

const TABLE = [
  '22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro',
  '40 22 8:1 / /data rw,noatime shared:2 master:3 - xfs /dev/sda1 rw,attr2,prjquota',
  '41 40 8:2 / /data/of\\040users rw - ext4 /dev/sdb rw,prjquota',
  '42 22 0:44 / /data2 rw - tmpfs tmpfs rw',
  '',
].join('\n');

describe('findMount', () => {
  it.each([
    ['/data/pods/volume', '/data'],
    ['/data', '/data'],
    ['/data/of users/a', '/data/of users'],
    ['/database', '/'],
    ['/data2/a', '/data2'],
  ])('finds that of %s', (path, mountPoint) => {
    expect(findMount(TABLE, path)?.mountPoint).toBe(mountPoint);
  });

  it('takes the last of two mounts on one path', () => {
    const over = '43 40 0:50 / /data rw - tmpfs tmpfs rw\n';
    expect(findMount(TABLE + over, '/data/pods')?.type).toBe('tmpfs');
  });

  it('finds none without a table', () => {
    expect(findMount('', '/data')).toBeUndefined();
  });
});

describe('findQuotaFault', () => {
  const judge = (path: string) => {
    const mount = findMount(TABLE, path);
    return mount && findQuotaFault(mount);
  };

  it('has nothing against ext4 and xfs with project quotas', () => {
    expect(judge('/data/pods')).toBeUndefined();
    expect(judge('/data/of users/a')).toBeUndefined();
  });

  it('names what is missing', () => {
    expect(judge('/home')).toBe('the file system / (ext4) is not mounted with prjquota');
    expect(judge('/data2')).toBe(
      'the file system /data2 is tmpfs; project quotas need ext4 or xfs',
    );
  });
});

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
