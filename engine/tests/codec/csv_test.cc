#include "millstream/codec/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millstream/core/error.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

CsvTable parse(std::string_view characters, const CsvFormat& format = {}) {
  return parse_csv(as_bytes(characters), "x.csv", format);
}

std::string error(std::string_view characters, const CsvFormat& format = {}) {
  return error_of<DataError>([&] { parse(characters, format); });
}

const CsvFormat kBare = {',', false, {}};
using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;

TEST(Csv, ReadsIntegersAndReals) {
  const CsvTable table = parse("a,b\n1,2.5\n-3,4\n+5,-6e-3\n");
  ASSERT_EQ(table.rows, 3);
  EXPECT_EQ(table.columns[0].name, "a");
  EXPECT_EQ(table.columns[0].dtype, DType::kInt64);
  EXPECT_EQ(table.columns[0].integers, (Integers{1, -3, 5}));
  EXPECT_EQ(table.columns[1].dtype, DType::kFloat64);
  EXPECT_EQ(table.columns[1].reals, (Reals{2.5, 4, -6e-3}));
}

TEST(Csv, BecomesRealAfterIntegers) {
  const CsvTable table = parse("x\n1\n9007199254740993\n0.5\n");
  EXPECT_EQ(table.columns[0].reals, (Reals{1, 9007199254740992.0, 0.5}));
  EXPECT_EQ(parse("x\n18446744073709551616\n").columns[0].reals,
            (Reals{18446744073709551616.0}));
  EXPECT_EQ(parse("x\n9223372036854775807\n").columns[0].integers,
            (Integers{std::numeric_limits<std::int64_t>::max()}));
  EXPECT_TRUE(std::isnan(parse("x\nnan\n").columns[0].reals[0]));
  EXPECT_TRUE(std::isinf(parse("x\n-inf\n").columns[0].reals[0]));
}

TEST(Csv, KeepsTheSignOfZeroInRealNumbers) {
  const CsvTable table = parse("a,b\n-0.0,-0\n0,1\n0.5,2\n-0,-0\n");
  const std::vector<double>& reals = table.columns[0].reals;
  EXPECT_EQ(reals, (Reals{0, 0, 0.5, 0}));
  EXPECT_TRUE(std::signbit(reals[0]));
  EXPECT_FALSE(std::signbit(reals[1]));
  EXPECT_TRUE(std::signbit(reals[3]));
  EXPECT_EQ(table.columns[1].integers, (Integers{0, 1, 2, 0}));
}

TEST(Csv, ListsAllDamagedLines) {
  const auto defects = [](std::string_view characters, std::size_t most = 9) {
    return csv_defects(as_bytes(characters), "x.csv", {}, most);
  };
  EXPECT_TRUE(defects("a,b\n1,2\n3,4\n").messages.empty());
  const CsvDefects found = defects("a,\"b\nc\"\n1,2\nx,2\n\n1\n1,2,3\n1,2\n1,y");
  ASSERT_EQ(found.messages.size(), 4u);
  EXPECT_EQ(found.last_line, 0);
  for (const auto& [i, line] :
       {std::pair{0u, "line 4,"}, {1u, "line 6,"}, {2u, "line 7,"}, {3u, "line 9,"}}) {
    EXPECT_NE(found.messages[i].find(line), std::string::npos) << found.messages[i];
  }
  EXPECT_EQ(defects("a\nx\nx\nx\n", 2).messages.size(), 2u);
  const CsvDefects open = defects("a,b\n1,\"2\n1,2\nx,2\n");
  EXPECT_EQ(open.messages.size(), 1u);
  EXPECT_EQ(open.last_line, 2);
  const CsvDefects twice = defects("a,b,a\n1,2\n");
  EXPECT_EQ(twice.messages.size(), 1u);
  EXPECT_EQ(twice.last_line, 1);
}

TEST(Csv, SkipsEmptyLinesAndBlanksAroundNumbers) {
  const CsvTable table = parse("\n\r\na,b\n\n1,\t2 \n\r\n\n\t3,4\n\n");
  EXPECT_EQ(table.columns[0].integers, (Integers{1, 3}));
  EXPECT_EQ(table.columns[1].integers, (Integers{2, 4}));
  EXPECT_EQ(parse("\n1,2\n\n3,4", kBare).rows, 2);
  EXPECT_NE(error("a\n\n1\n\nx\n").find("line 5"), std::string::npos);
  EXPECT_NE(error("\n\nx\n", kBare).find("line 3"), std::string::npos);
}

TEST(Csv, EscapesBytesThatAreNotText) {
  EXPECT_EQ(error(std::string_view("a\nx\0\x1B\n", 6)),
            "x.csv: line 2, column 1 ('a'): expected a number, found 'x\\x00\\x1b'");
  EXPECT_EQ(error(std::string_view("a\0\nx\n", 5)),
            "x.csv: line 2, column 1 ('a\\x00'): expected a number, found 'x'");
}

TEST(Csv, RoundsNumbersOutOfRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  const CsvTable table =
      parse("a\n1.5e400\n-1e400\n1.5e-400\n-1e-400\n5e-324\n+2e999\n");
  EXPECT_EQ(table.columns[0].reals,
            (Reals{infinity, -infinity, 0.0, 0.0, 5e-324, infinity}));
  EXPECT_TRUE(std::signbit(table.columns[0].reals[3]));
  EXPECT_NE(error("a\n1e400x\n").find("expected a number"), std::string::npos);
}

TEST(Csv, ReadsQuotesLineEndsAndByteOrderMark) {
  const CsvTable table =
      parse("\xEF\xBB\xBF\"a, \"\"b\"\"\",c\r\n\"1\", 2 \r\n3,\"4.5\"\r\n\r\n");
  ASSERT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns[0].name, "a, \"b\"");
  EXPECT_EQ(table.columns[0].integers, (Integers{1, 3}));
  EXPECT_EQ(table.columns[1].reals, (Reals{2, 4.5}));
}

TEST(Csv, ReadsTablesWithoutHeaderAndWithTabs) {
  const CsvTable table = parse("1\t2\n3\t4", {'\t', false, {}});
  ASSERT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns[1].name, "column1");
  EXPECT_EQ(table.columns[1].integers, (Integers{2, 4}));
}

TEST(Csv, ReadsOnlyTheRequestedColumns) {
  const CsvTable table =
      parse("date,t,u\n\"1981-01-01\",20.7,1\n\"two\nlines\",17.9,2\n",
            {',', true, {"u", "t"}});
  ASSERT_EQ(table.columns.size(), 2u);
  EXPECT_EQ(table.columns[0].integers, (Integers{1, 2}));
  EXPECT_EQ(table.columns[1].reals, (Reals{20.7, 17.9}));
  EXPECT_EQ(error_of<ArgumentError>([] {
              parse("a\n1\n", {',', true, {"b"}});
            }),
            "x.csv: there is no column 'b'");
}

TEST(Csv, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error("a,b\n1,2\n3,x4\n"),
            "x.csv: line 3, column 2 ('b'): expected a number, found 'x4'");
  EXPECT_EQ(error("1,2\n3,\n", kBare),
            "x.csv: line 2, column 2: expected a number, found ''");
  EXPECT_EQ(error("1,2\n3\n", kBare),
            "x.csv: line 2, column 1: expected 2 cells, found 1");
  EXPECT_EQ(error("1,2\n3,4,5\n", kBare),
            "x.csv: line 2, column 2: expected 2 cells, found more");
  EXPECT_EQ(error("1,\"2\n3,4\n", kBare),
            "x.csv: line 1, column 2: expected a closing quote, found the end");
  EXPECT_EQ(error("\"1\"2\n", kBare),
            "x.csv: line 1, column 1: expected the end of the cell after its quote, "
            "found '2'");
  EXPECT_EQ(error("a,t\n\"x\ny\",1\nz,w\n", {',', true, {"t"}}),
            "x.csv: line 4, column 2 ('t'): expected a number, found 'w'");
  EXPECT_EQ(error("a,a\n1,2\n"),
            "x.csv: line 1, column 1 ('a'): expected different column names, found 'a' "
            "twice");
  EXPECT_EQ(error("a,caf\xE9\n1,2\n"),
            "x.csv: line 1, column 2 ('caf\\xe9'): expected a name in UTF-8, found "
            "'caf\\xe9'");
  EXPECT_EQ(error("caf\xC3\xA9\n1\n"), "");
  EXPECT_EQ(error("a,caf\xE9\n1,2\n", {',', true, {"a"}}), "");
  EXPECT_EQ(error(""), "x.csv: line 1, column 1: expected a line, found an empty file");
  EXPECT_NE(error("a,b\n").find("found only the header"), std::string::npos);
  EXPECT_NE(error("a\n+-1\n").find("expected a number"), std::string::npos);
  EXPECT_NE(error("a\n0x10\n").find("expected a number"), std::string::npos);
  EXPECT_NE(error("a\n1 2\n").find("expected a number"), std::string::npos);
  EXPECT_THROW(parse("a\n1\n", {'"', true, {}}), ArgumentError);
}

}  // namespace
}  // namespace millstream
