#include "millstream/codec/csv.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "millstream/core/characters.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";
constexpr std::size_t kSkipped = static_cast<std::size_t>(-1);
constexpr std::size_t kShown = 24;  // characters of a bad cell

/// Parses a number that is out of the range of double: infinity or zero.
double out_of_range(std::string_view number) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(std::string(number).c_str(), nullptr, plain);
}

class CsvParser {
 public:
  CsvParser(std::string_view characters, const std::string& name,
            const CsvFormat& format)
      : rest_(characters), name_(name), format_(format) {
    if (rest_.starts_with(kMark)) rest_.remove_prefix(kMark.size());
    while (!rest_.empty() && (rest_.back() == '\n' || rest_.back() == '\r')) {
      rest_.remove_suffix(1);
    }
  }

  CsvTable parse() {
    if (rest_.empty()) fail("a line", "an empty file");
    read_names();
    while (!ended_) read_line();
    if (table_.rows == 0) fail("a line of numbers", "only the header");
    return std::move(table_);
  }

  CsvDefects defects(std::size_t most) {
    CsvDefects found;
    while (found.messages.size() < most && !ended_) {
      const std::string_view before = rest_;
      const bool is_first = names_.empty();
      try {
        is_first ? read_names() : read_line();
      } catch (const DataError& error) {
        found.messages.emplace_back(error.what());
        const std::string_view line = before.substr(0, before.find('\n'));
        if (is_first || std::ranges::count(line, '"') % 2 != 0) {
          found.last_line = line_started_;
          break;
        }
        rest_ = before.substr(std::min(line.size() + 1, before.size()));
        ended_ = rest_.empty();
        line_ = line_started_;
      }
      skip_empty_lines();
    }
    return found;
  }

 private:
  void read_line() {
    skip_empty_lines();
    ++line_;
    line_started_ = line_;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      column_ = i;
      const std::string_view cell = next_cell();
      if (slots_[i] != kSkipped) add(table_.columns[slots_[i]], cell);
      if (line_ended_ && i + 1 < names_.size()) {
        fail(text(names_.size(), " cells"), text(i + 1));
      }
    }
    if (!line_ended_) fail(text(names_.size(), " cells"), "more");
    ++table_.rows;
  }

  void read_names() {
    skip_empty_lines();
    const std::string_view all = rest_;
    const std::int64_t before = line_++;
    line_started_ = line_;
    do {
      column_ = names_.size();
      const std::string_view cell = next_cell();
      names_.push_back(format_.header ? std::string(cell)
                                      : text("column", names_.size()));
    } while (!line_ended_);
    if (!format_.header) {
      rest_ = all;
      line_ = before;
      ended_ = false;
    }
    slots_.assign(names_.size(), kSkipped);
    std::multimap<std::string_view, std::size_t> known;
    for (std::size_t i = 0; i < names_.size(); ++i) known.emplace(names_[i], i);
    const auto& wanted = format_.columns.empty() ? names_ : format_.columns;
    for (const std::string& column : wanted) {
      const auto [found, end] = known.equal_range(column);
      if (found == end) {
        throw ArgumentError({.file = name_,
                             .field = column,
                             .text = text("there is no column '", column, "'")});
      }
      column_ = found->second;
      if (std::next(found) != end || slots_[column_] != kSkipped) {
        fail("different column names", text(quote_bytes(column), " twice"));
      }
      if (!is_utf8(column))
        fail("a name in UTF-8", quote_bytes(column.substr(0, kShown)));
      slots_[column_] = table_.columns.size();
      table_.columns.emplace_back().name = column;
    }
  }

  /// A non-empty line follows, because the constructor removed empty lines at the end.
  void skip_empty_lines() {
    while (rest_.starts_with('\n') || rest_.starts_with("\r\n")) {
      rest_.remove_prefix(rest_.find('\n') + 1);
      ++line_;
    }
  }

  /// The text of the next cell, without quotes; valid until the next call.
  std::string_view next_cell() {
    std::string_view cell;
    if (!rest_.empty() && rest_.front() == '"') {
      cell = quoted();
    } else {
      std::size_t end = 0;
      while (end < rest_.size() && rest_[end] != format_.delimiter &&
             rest_[end] != '\n') {
        ++end;
      }
      cell = rest_.substr(0, end);
      rest_.remove_prefix(end);
      if (cell.ends_with('\r') && (rest_.empty() || rest_.front() == '\n')) {
        cell.remove_suffix(1);
      }
    }
    ended_ = rest_.empty();
    line_ended_ = ended_ || rest_.front() == '\n';
    if (!ended_) rest_.remove_prefix(1);
    return cell;
  }

  std::string_view quoted() {
    unquoted_.clear();
    rest_.remove_prefix(1);
    for (;;) {
      const std::size_t end = rest_.find('"');
      if (end == std::string_view::npos) fail("a closing quote", "the end");
      const std::string_view piece = rest_.substr(0, end);
      line_ += std::ranges::count(piece, '\n');
      unquoted_ += piece;
      rest_.remove_prefix(end + 1);
      if (!rest_.starts_with('"')) break;
      unquoted_ += '"';
      rest_.remove_prefix(1);
    }
    if (rest_.starts_with("\r\n")) rest_.remove_prefix(1);
    if (!rest_.empty() && rest_.front() != format_.delimiter && rest_.front() != '\n') {
      fail("the end of the cell after its quote", quote_bytes(rest_.substr(0, 1)));
    }
    return unquoted_;
  }

  void add(CsvColumn& column, std::string_view cell) {
    std::string_view number = cell;
    while (number.starts_with(' ') || number.starts_with('\t')) number.remove_prefix(1);
    while (number.ends_with(' ') || number.ends_with('\t')) number.remove_suffix(1);
    if (number.starts_with('+') && !number.starts_with("+-")) number.remove_prefix(1);
    const char* const begin = number.data();
    const char* const end = begin + number.size();
    if (column.dtype == DType::kInt64) {
      std::int64_t value = 0;
      const auto read = std::from_chars(begin, end, value);
      if (read.ec == std::errc{} && read.ptr == end) {
        column.integers.push_back(value);
        return;
      }
      column.dtype = DType::kFloat64;
      column.reals.assign(column.integers.begin(), column.integers.end());
      column.integers = {};
    }
    double value = 0;
    const auto read = std::from_chars(begin, end, value);
    if (read.ec == std::errc::result_out_of_range) value = out_of_range(number);
    if (read.ec == std::errc::invalid_argument || read.ptr != end) {
      fail("a number", cell.size() <= kShown
                           ? quote_bytes(cell)
                           : text("'", escaped(cell.substr(0, kShown)), "...'"));
    }
    column.reals.push_back(value);
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    throw DataError({.file = name_,
                     .line = line_started_,
                     .column = static_cast<std::int64_t>(column_) + 1,
                     .field = column_ < names_.size() ? names_[column_] : "",
                     .expected = expected,
                     .found = found});
  }

  std::string_view rest_;
  const std::string& name_;
  const CsvFormat& format_;
  CsvTable table_;
  std::vector<std::string> names_;
  std::vector<std::size_t> slots_;  // the position of each column in the table
  std::string unquoted_;
  std::int64_t line_ = 0;
  std::int64_t line_started_ = 1;  // a quoted cell may contain line breaks
  std::size_t column_ = 0;
  bool line_ended_ = false;
  bool ended_ = false;
};

CsvParser parser(std::span<const std::byte> bytes, const std::string& name,
                 const CsvFormat& format) {
  if (format.delimiter == '"' || format.delimiter == '\n' || format.delimiter == '\r') {
    throw ArgumentError("a delimiter must not be a quote or a line break");
  }
  const std::string_view characters(reinterpret_cast<const char*>(bytes.data()),
                                    bytes.size());
  return {characters, name, format};
}

}  // namespace

CsvTable parse_csv(std::span<const std::byte> bytes, const std::string& name,
                   const CsvFormat& format) {
  return parser(bytes, name, format).parse();
}

CsvDefects csv_defects(std::span<const std::byte> bytes, const std::string& name,
                       const CsvFormat& format, std::size_t most) {
  return parser(bytes, name, format).defects(most);
}

}  // namespace millstream
