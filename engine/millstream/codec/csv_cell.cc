#include "millstream/codec/csv_cell.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

namespace millstream {
namespace {

constexpr CellError kNoNumber = {
    "a number",
    "read only other columns with columns=, or convert this one to numbers"};
constexpr CellError kMissing = {
    "a number",
    "pass a number as missing= to replace missing values, or missing=\"mask\""};
constexpr CellError kNoBoolean = {
    "true or false",
    "the cells before it are booleans, and a field holds either booleans or numbers"};
constexpr CellError kNumberFilled = {
    "true or false",
    "missing= must be 0, 1 or \"mask\", because this field holds booleans"};
constexpr CellError kFilledWithNumber = {
    "a number, because missing= is one",
    "missing= must be 0, 1 or \"mask\" if a field holds booleans"};

/// Parses a number that is out of the range of double: infinity or zero.
double out_of_range(std::string_view number) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(std::string(number).c_str(), nullptr, plain);
}

std::string_view trimmed(std::string_view cell) {
  while (cell.starts_with(' ') || cell.starts_with('\t')) cell.remove_prefix(1);
  while (cell.ends_with(' ') || cell.ends_with('\t')) cell.remove_suffix(1);
  return cell;
}

/// Whether `cell` is `word`, which is in lower case, in any case.
bool is_word(std::string_view cell, std::string_view word) {
  const auto same = [](char c, char lower) {
    return c == lower || ('A' <= c && c <= 'Z' && c - 'A' + 'a' == lower);
  };
  return std::ranges::equal(cell, word, same);
}

bool is_missing(std::string_view cell) {
  return cell.empty() || is_word(cell, "na") || is_word(cell, "n/a") ||
         is_word(cell, "null");
}

/// The number as an integer, if it is one.
std::optional<std::int64_t> whole(double number) {
  constexpr double kLimit = 0x1p63;
  if (!(number >= -kLimit && number < kLimit) || std::trunc(number) != number) {
    return {};
  }
  return static_cast<std::int64_t>(number);
}

void make_real(CsvColumn& column) {
  if (column.dtype == DType::kFloat64) return;
  column.dtype = DType::kFloat64;
  column.reals.assign(column.integers.begin(), column.integers.end());
  column.integers = {};
}

/// Makes a column without values one of booleans; those before are all missing.
void make_boolean(CsvColumn& column, bool missing) {
  const std::size_t size = std::max(column.integers.size(), column.reals.size());
  column.dtype = DType::kBool;
  column.booleans.assign(size, missing ? 1 : 0);
  column.integers = {};
  column.reals = {};
}

std::optional<CellError> store_missing(std::size_t at, double value,
                                       CsvColumn& column) {
  if (!column.present.empty()) column.present[at] = 0;
  if (column.dtype == DType::kBool) {
    if (value != 0 && value != 1) return kNumberFilled;
    column.booleans[at] = value != 0;
    return {};
  }
  const std::optional<std::int64_t> integer = whole(value);
  if (!integer) make_real(column);
  if (column.dtype == DType::kInt64) {
    column.integers[at] = *integer;
  } else {
    column.reals[at] = value;
  }
  return {};
}

std::optional<CellError> store_boolean(bool value, std::size_t at,
                                       const std::optional<double>& missing,
                                       CsvColumn& column) {
  if (column.dtype != DType::kBool) {
    if (column.has_values) return kNoNumber;
    if (missing && *missing != 0 && *missing != 1) return kFilledWithNumber;
    make_boolean(column, missing && *missing == 1);
  }
  column.has_values = true;
  column.booleans[at] = value ? 1 : 0;
  return {};
}

}  // namespace

void resize(CsvColumn& column, std::int64_t rows, bool mask) {
  const auto cells = static_cast<std::size_t>(rows * column.shape.elements());
  if (mask) column.present.resize(cells, 1);
  if (column.dtype == DType::kBool) column.booleans.resize(cells);
  if (column.dtype == DType::kInt64) column.integers.resize(cells);
  if (column.dtype == DType::kFloat64) column.reals.resize(cells);
}

std::optional<CellError> store_cell(std::string_view cell, std::size_t at,
                                    const std::optional<double>& missing,
                                    CsvColumn& column) {
  const std::string_view word = trimmed(cell);
  const bool has_plus = word.starts_with('+') && !word.starts_with("+-");
  const std::string_view number = word.substr(has_plus ? 1 : 0);
  const char* const begin = number.data();
  const char* const end = begin + number.size();
  if (column.dtype == DType::kInt64) {
    std::int64_t value = 0;
    const auto read = std::from_chars(begin, end, value);
    if (read.ec == std::errc{} && read.ptr == end) {
      column.has_values = true;
      column.integers[at] = value;
      return {};
    }
  }
  double value = 0;
  const auto read = std::from_chars(begin, end, value);
  if (missing && std::isnan(value) && is_word(word, "nan")) {
    return store_missing(at, *missing, column);
  }
  if (read.ec != std::errc::invalid_argument && read.ptr == end) {
    if (column.dtype == DType::kBool) return kNoBoolean;
    make_real(column);
    column.has_values = true;
    column.reals[at] =
        read.ec == std::errc::result_out_of_range ? out_of_range(number) : value;
    return {};
  }
  if (is_word(word, "true")) return store_boolean(true, at, missing, column);
  if (is_word(word, "false")) return store_boolean(false, at, missing, column);
  if (is_missing(word) && missing) return store_missing(at, *missing, column);
  if (is_missing(word)) return kMissing;
  return column.dtype == DType::kBool ? kNoBoolean : kNoNumber;
}

}  // namespace millstream
