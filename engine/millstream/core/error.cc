#include "millstream/core/error.h"

#include <array>

#include "millstream/core/characters.h"

namespace millstream {
namespace {

constexpr std::size_t kShown = 24;  // characters of a column's name

constexpr std::array<std::string_view, 11> kNames = {
    "other",     "argument", "data",     "io",          "memory",        "thread",
    "cancelled", "closed",   "function", "worker_died", "worker_stalled"};

/// Replaces zero bytes by "\x00", because `what` returns a C string.
std::string without_zeros(const std::string& message) {
  std::string whole;
  for (const char c : message) {
    if (c == '\0') whole += "\\x00";
    if (c != '\0') whole += c;
  }
  return whole;
}

/// Where the error is, e.g. "x.csv: line 3, column 1 ('a'): ".
std::string place(const ErrorFields& fields) {
  std::string words;
  if (!fields.file.path.empty()) words += fields.file.str() + ": ";
  if (fields.offset) words += text("offset ", *fields.offset, ": ");
  if (fields.line) words += text("line ", *fields.line);
  if (fields.line && fields.column) {
    words += text(", column ", *fields.column);
    // The name of a column without a header repeats its number; leave it out.
    if (!fields.field.empty() && fields.field != text("column", *fields.column - 1)) {
      const auto shown = std::string_view(fields.field).substr(0, kShown);
      words += text(" (", quote_bytes(shown), ")");
    }
  }
  if (fields.line) words += ": ";
  // Without a sample, the file or the text already names the field.
  if (!fields.line && !fields.field.empty() && fields.sample) {
    words += escaped(fields.field) + ": ";
  }
  return words;
}

/// What is wrong, e.g. "expected a number, found 'b'".
std::string fault(const ErrorFields& fields) {
  std::string words;
  if (!fields.expected.empty()) words += "expected " + fields.expected;
  if (!fields.found.empty()) words += (words.empty() ? "found " : ", found ");
  words += fields.found;
  if (!words.empty() && !fields.text.empty()) words += "; ";
  return words + fields.text;
}

template <typename T>
void fill(T& known, const T& other, bool is_known) {
  if (!is_known) known = other;
}

}  // namespace

std::string FileName::str() const {
  return member.empty() ? path : text(path, "[", escaped(member), "]");
}

std::string_view name(ErrorKind kind) noexcept {
  return kNames[static_cast<std::size_t>(kind)];
}

std::string composed(ErrorKind kind, const ErrorFields& fields) {
  std::string words = place(fields);
  if (kind == ErrorKind::kWorkerDied && fields.process) {
    words += text("worker process ", *fields.process, " ", fault(fields));
    if (fields.sample) words += text(" while it made sample ", *fields.sample);
  } else {
    const bool says_expected = !fields.expected.empty() || !fields.found.empty();
    if (fields.sample) {
      words += text("sample ", *fields.sample, says_expected ? ": " : " ");
    }
    words += fault(fields);
  }
  return without_zeros(words);
}

Error::Error(ErrorFields fields, ErrorKind kind)
    : kind_(kind), fields_(std::move(fields)), message_(composed(kind_, fields_)) {}

Error::Error(std::string text, ErrorKind kind)
    : Error(ErrorFields{.text = std::move(text)}, kind) {}

void Error::add(const ErrorFields& known) {
  fill(fields_.file, known.file, !fields_.file.path.empty());
  fill(fields_.offset, known.offset, fields_.offset.has_value());
  fill(fields_.line, known.line, fields_.line.has_value());
  fill(fields_.column, known.column, fields_.column.has_value());
  fill(fields_.sample, known.sample, fields_.sample.has_value());
  fill(fields_.process, known.process, fields_.process.has_value());
  fill(fields_.field, known.field, !fields_.field.empty());
  fill(fields_.expected, known.expected, !fields_.expected.empty());
  fill(fields_.found, known.found, !fields_.found.empty());
  fill(fields_.text, known.text, !fields_.text.empty());
  message_ = composed(kind_, fields_);
}

}  // namespace millstream
