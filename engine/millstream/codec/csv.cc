#include "millstream/codec/csv.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "millstream/codec/csv_cell.h"
#include "millstream/core/characters.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";
constexpr std::size_t kShown = 24;  // characters of a bad cell

/// A cell of each line that is stored: value `element` of the row of a field.
struct Use {
  std::size_t column = 0;  // of the table
  std::size_t field = 0;
  std::size_t element = 0;
};

class CsvParser {
 public:
  CsvParser(std::string_view characters, const std::string& name,
            const CsvFormat& format)
      : rest_(characters), name_(name), format_(format) {
    if (rest_.starts_with(kMark)) rest_.remove_prefix(kMark.size());
    begins_with_hash_ = rest_.starts_with('#');
    while (!rest_.empty() && (rest_.back() == '\n' || rest_.back() == '\r')) {
      rest_.remove_suffix(1);
    }
  }

  CsvTable parse() {
    skip_lines();
    if (ended_) fail("a line", "an empty file");
    read_names();
    for (skip_lines(); !ended_; skip_lines()) read_line();
    if (table_.rows == 0) fail("a line of numbers", "only the header");
    return std::move(table_);
  }

  CsvDefects defects(std::size_t most) {
    CsvDefects found;
    skip_lines();
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
        line_ = line_started_;
      }
      skip_lines();
    }
    return found;
  }

 private:
  void read_line() {
    ++line_;
    line_started_ = line_;
    for (CsvColumn& column : table_.columns) {
      resize(column, table_.rows + 1, format_.mask);
    }
    auto use = uses_.begin();
    for (std::size_t i = 0; i < names_.size(); ++i) {
      column_ = i;
      const std::string_view cell = next_cell();
      for (; use != uses_.end() && use->column == i; ++use) store(*use, cell);
      if (line_ended_ && i + 1 < names_.size()) {
        fail(text(names_.size(), " cells"), text(i + 1));
      }
    }
    if (!line_ended_) fail(text(names_.size(), " cells"), "more");
    ++table_.rows;
  }

  void read_names() {
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
    }
    find_columns();
  }

  /// Lists the cells that are stored for the fields of the format.
  void find_columns() {
    if (format_.fields.empty()) {
      for (std::size_t i = 0; i < names_.size(); ++i) {
        column_ = i;
        add_field(CsvField{names_[i]});
      }
    }
    for (const CsvField& field : format_.fields) add_field(field);
    std::ranges::stable_sort(uses_, {}, &Use::column);
  }

  void add_field(const CsvField& field) {
    std::vector<std::size_t> columns;
    if (field.columns.empty()) columns = {named(field.name)};
    for (const CsvReference& reference : field.columns) {
      if (const auto* range = std::get_if<CsvRange>(&reference)) {
        for (std::size_t column : ranged(field, *range)) columns.push_back(column);
      } else if (const auto* index = std::get_if<std::int64_t>(&reference)) {
        columns.push_back(numbered(field, *index));
      } else {
        columns.push_back(named(std::get<std::string>(reference)));
      }
    }
    if (!field.is_array && columns.size() != 1) {
      throw ArgumentError(text("'", field.name, "' needs one column, not ",
                               columns.size(), "; read several as an array"));
    }
    if (!is_utf8(field.name)) {
      fail("a name in UTF-8", quote_bytes(field.name.substr(0, kShown)));
    }
    if (!used_names_.insert(field.name).second) {
      fail("different column names", text(quote_bytes(field.name), " twice"));
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      uses_.push_back({columns[i], table_.columns.size(), i});
    }
    CsvColumn& column = table_.columns.emplace_back();
    column.name = field.name;
    if (field.is_array) column.shape = {static_cast<std::int64_t>(columns.size())};
  }

  std::size_t named(const std::string& name) {
    if (known_.empty()) {
      for (std::size_t i = 0; i < names_.size(); ++i) known_.emplace(names_[i], i);
    }
    const auto [found, end] = known_.equal_range(name);
    if (found == end) {
      throw ArgumentError(
          {.file = name_,
           .field = name,
           .text = with_comment_advice(text("there is no column '", name, "'"))});
    }
    column_ = found->second;
    if (std::next(found) != end) {
      fail("different column names", text(quote_bytes(name), " twice"));
    }
    return column_;
  }

  std::size_t numbered(const CsvField& field, std::int64_t index) const {
    const auto count = static_cast<std::int64_t>(names_.size());
    if (index < -count || index >= count) no_column(field, text(index));
    return static_cast<std::size_t>(index < 0 ? index + count : index);
  }

  std::vector<std::size_t> ranged(const CsvField& field, const CsvRange& range) const {
    const auto count = static_cast<std::int64_t>(names_.size());
    const auto begin = static_cast<std::int64_t>(numbered(field, range.begin));
    std::int64_t end = range.end.value_or(count);
    if (end < -count || end > count) no_column(field, text(end < 0 ? end : end - 1));
    if (end < 0) end += count;
    if (begin >= end || range.step < 1) {
      throw ArgumentError({.file = name_,
                           .field = field.name,
                           .text = text("columns: the slice of '", field.name,
                                        "' selects none of ", count, " columns")});
    }
    std::vector<std::size_t> columns;
    for (std::int64_t at = begin; at < end; at += std::min(range.step, end - at)) {
      columns.push_back(static_cast<std::size_t>(at));
    }
    return columns;
  }

  [[noreturn]] void no_column(const CsvField& field, const std::string& index) const {
    throw ArgumentError(
        {.file = name_,
         .field = field.name,
         .text = text("columns: there is no column ", index, " for '", field.name,
                      "': the table has ", names_.size(), " columns")});
  }

  /// Skips empty lines and comments, and notes whether the text has ended.
  void skip_lines() {
    for (;;) {
      const bool is_empty = rest_.starts_with('\n') || rest_.starts_with("\r\n");
      const bool is_comment = format_.comment && rest_.starts_with(*format_.comment);
      if (!is_empty && !is_comment) break;
      rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size() - 1) + 1);
      ++line_;
    }
    ended_ = rest_.empty();
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
    line_ended_ = rest_.empty() || rest_.front() == '\n';
    if (!rest_.empty()) rest_.remove_prefix(1);
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

  void store(const Use& use, std::string_view cell) {
    CsvColumn& column = table_.columns[use.field];
    const auto row = static_cast<std::size_t>(table_.rows * column.shape.elements());
    const auto error = store_cell(cell, row + use.element, format_.missing, column);
    if (!error) return;
    fail(std::string(error->expected),
         cell.size() <= kShown ? quote_bytes(cell)
                               : text("'", escaped(cell.substr(0, kShown)), "...'"),
         std::string(error->advice));
  }

  /// Adds how to skip comments, if the text seems to begin with one.
  std::string with_comment_advice(std::string advice) const {
    if (!begins_with_hash_ || format_.comment || format_.delimiter == '#') {
      return advice;
    }
    if (!advice.empty()) advice += "; ";
    return advice + "if lines that begin with '#' are comments, pass comment=\"#\"";
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found,
                         const std::string& advice = {}) const {
    throw DataError({.file = name_,
                     .line = line_started_,
                     .column = static_cast<std::int64_t>(column_) + 1,
                     .field = column_ < names_.size() ? names_[column_] : "",
                     .expected = expected,
                     .found = found,
                     .text = with_comment_advice(advice)});
  }

  std::string_view rest_;
  const std::string& name_;
  const CsvFormat& format_;
  bool begins_with_hash_ = false;
  CsvTable table_;
  std::vector<std::string> names_;
  std::multimap<std::string_view, std::size_t> known_;  // the columns by name
  std::set<std::string> used_names_;                    // of the fields
  std::vector<Use> uses_;                               // sorted by column
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
  if (format.comment &&
      (*format.comment == format.delimiter || *format.comment == '"' ||
       *format.comment == '\n' || *format.comment == '\r')) {
    throw ArgumentError("a comment must not be the delimiter, a quote or a line break");
  }
  const std::string_view characters(reinterpret_cast<const char*>(bytes.data()),
                                    bytes.size());
  return {characters, name, format};
}

}  // namespace

const std::byte* CsvColumn::data() const noexcept {
  if (dtype == DType::kBool) return std::as_bytes(std::span(booleans)).data();
  if (dtype == DType::kInt64) return std::as_bytes(std::span(integers)).data();
  return std::as_bytes(std::span(reals)).data();
}

CsvTable parse_csv(std::span<const std::byte> bytes, const std::string& name,
                   const CsvFormat& format) {
  return parser(bytes, name, format).parse();
}

CsvDefects csv_defects(std::span<const std::byte> bytes, const std::string& name,
                       const CsvFormat& format, std::size_t most) {
  return parser(bytes, name, format).defects(most);
}

}  // namespace millstream
