/** Lines of a table with aligned columns; the first row is the heading. Cells lose what would steer a terminal. */
export function tableLines(rows: readonly (readonly string[])[]): string[] {
  const clean = rows.map((row) => row.map(printable))
  const widths = (clean[0] ?? []).map((_, column) =>
    Math.max(...clean.map((row) => row[column]?.length ?? 0)),
  )
  return clean.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

/** Text without control, format and line-separating characters, which are shown as escapes (CWE-150). */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\u2028\u2029]/gu,
    (found) => `\\u{${(found.codePointAt(0) ?? 0).toString(16)}}`,
  )
}
