// The tables of docs/operations/metrics.md: each metric with its labels and its type.
import { readFileSync } from 'node:fs';

export interface DocumentedMetric {
  name: string;
  labels: string[];
  type: string;
}

/** Those below the titles, each with all its subtitles. */
export function readDocumented(...titles: string[]): DocumentedMetric[] {
  const page = readFileSync('docs/operations/metrics.md', 'utf8');
  return titles.flatMap((title) => readTables(cutSection(page, title)));
}

function cutSection(page: string, title: string): string {
  const [, section] = page.split(`\n## ${title}\n`);
  if (section === undefined) throw new Error(`docs/operations/metrics.md has no section ${title}`);
  return section.split('\n## ')[0] ?? '';
}

function readTables(section: string): DocumentedMetric[] {
  const rows = section.matchAll(/^\| (`.*?`) \| (gauge|counter|histogram) \|/gm);
  return [...rows].flatMap(([, names = '', type = '']) =>
    [...names.matchAll(/`(\w+)(?:\{([\w,]+)\})?`/g)].map(([, name = '', labels = '']) => ({
      ...{ name, type },
      labels: labels === '' ? [] : labels.split(','),
    })),
  );
}

/** Names and types in Prometheus' text format. */
export function readTypes(text: string): Pick<DocumentedMetric, 'name' | 'type'>[] {
  return [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => ({
    ...{ name, type },
  }));
}

/** Labels of the series of a metric, of one series each. */
export function readLabels(text: string, name: string): string[][] {
  const series = text.matchAll(
    new RegExp(`^${name}(?:_bucket|_sum|_count)?(?:\\{(.*)\\})? `, 'gm'),
  );
  return [...series].map(([, labels = '']) =>
    [...labels.matchAll(/(\w+)="/g)].map(([, label = '']) => label).filter((each) => each !== 'le'),
  );
}
