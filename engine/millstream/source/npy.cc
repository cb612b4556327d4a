#include "millstream/source/npy.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "millstream/codec/npy.h"
#include "millstream/codec/zip.h"
#include "millstream/core/characters.h"
#include "millstream/core/error.h"
#include "millstream/source/unpack.h"

namespace millstream {
namespace {

ArrayLayout npy_layout(const File& file, std::int64_t begin, std::int64_t size,
                       const FileName& name) {
  const auto header = file.bytes(begin, std::min(size, kNpyHeader + 12));
  ByteReader reader(header, name, begin);
  return parse_npy(reader, size);
}

MappedColumn npz_column(const std::shared_ptr<const MappedFile>& mapped,
                        const File& file, const ZipMember& member,
                        const std::string& field, const std::filesystem::path& cache) {
  const FileName name(file.path().string(), field);
  const auto header = file.bytes(member.header, kZipMemberHeader);
  ByteReader reader(header, name, member.header);
  const std::int64_t data = zip_member_data(reader, member, file.size());
  ArrayLayout layout;
  MappedArray array;
  if (member.method == kZipDeflated) {
    const auto checked = [&](std::span<const std::byte> head) {
      ByteReader inside(head, name);
      parse_npy(inside, member.size);
      return member.size;
    };
    File copy(unpacked_member(file, member, data, cache, checked));
    layout = npy_layout(copy, 0, copy.size(), name);
    array = mapped_array(std::make_shared<const MappedFile>(std::move(copy)), layout);
  } else {
    layout = npy_layout(file, data, member.size, name);
    array = mapped_array(mapped, layout, data);
  }
  array.name = name;
  return {row_field(field, layout), {std::move(array)}};
}

/// Removes the longest prefix of `rest` that has only digits, or no digits.
std::string_view take_run(std::string_view& rest, bool digits) {
  const auto end = std::ranges::find_if(
      rest, [&](char c) { return ('0' <= c && c <= '9') != digits; });
  const auto run = rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
  rest.remove_prefix(run.size());
  return run;
}

/// Natural sort order: compares runs of digits as numbers and everything between them
/// as text. Of equal numbers, the one with fewer digits comes first.
bool by_number(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view digits) {
    const auto value =
        digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
    return std::tuple(value.size(), value, digits.size());
  };
  for (bool digits = false; !a.empty() || !b.empty(); digits = !digits) {
    const std::string_view in_a = take_run(a, digits);
    const std::string_view in_b = take_run(b, digits);
    if (in_a == in_b) continue;
    return digits ? number(in_a) < number(in_b) : in_a < in_b;
  }
  return false;
}

}  // namespace

std::vector<std::filesystem::path> shards_of(const std::filesystem::path& path,
                                             const std::string& extension) {
  std::error_code code;
  if (!std::filesystem::is_directory(path, code)) return {path};
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(path, code)) {
    // Skip hidden files, e.g. the ._x.npy that macOS writes next to x.npy.
    if (entry.path().filename().native().starts_with('.')) continue;
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  if (code) throw io_error(code.value(), path, "cannot be listed");
  if (paths.empty()) {
    throw DataError({.file = path.string(),
                     .expected = extension + " files in this folder",
                     .found = "none"});
  }
  std::ranges::sort(paths, [](const auto& a, const auto& b) {
    return by_number(a.filename().native(), b.filename().native());
  });
  return paths;
}

ColumnsSource npy_source(const std::vector<FieldFiles>& fields) {
  return ColumnsSource(
      joined_columns(fields, [](const std::filesystem::path& path) -> OpenedArray {
        File file(path);
        const ArrayLayout layout = npy_layout(file, 0, file.size(), path.string());
        return {
            layout,
            mapped_array(std::make_shared<const MappedFile>(std::move(file)), layout)};
      }));
}

ColumnsSource npz_source(const std::filesystem::path& path,
                         const std::vector<std::string>& names,
                         const std::filesystem::path& cache) {
  const File file(path);
  const std::int64_t tail = std::max<std::int64_t>(file.size() - kZipEnd, 0);
  const ZipDirectory directory =
      find_zip_directory(file.bytes(tail, kZipEnd), path.string(), file.size());
  const auto bytes = file.bytes(directory.offset, directory.size);
  ByteReader reader(bytes, path.string(), directory.offset);
  const auto members = parse_zip_directory(reader, directory);

  std::map<std::string, const ZipMember*> arrays;
  std::vector<std::string> all;  // in file order
  std::string known;
  for (const ZipMember& member : members) {
    known += text(" ", quote_bytes(member.name));
    if (!member.name.ends_with(".npy")) continue;
    if (!arrays.emplace(member.name, &member).second) {
      reader.fail(member.header, "members with different names",
                  text("a second ", quote_bytes(member.name)));
    }
    all.push_back(member.name);
  }
  if (names.empty() && all.empty()) {
    reader.fail(directory.offset, "members whose names end in .npy",
                members.empty() ? "none" : text("only", known));
  }

  const auto mapped = std::make_shared<const MappedFile>(File(path));
  std::vector<MappedColumn> columns;
  for (const std::string& wanted : names.empty() ? all : names) {
    auto found = arrays.find(wanted);
    if (found == arrays.end()) found = arrays.find(wanted + ".npy");
    if (found == arrays.end()) {
      throw ArgumentError(
          {.file = path.string(),
           .field = wanted,
           .text = text("there is no array '", wanted, "', only the members", known)});
    }
    const ZipMember& member = *found->second;
    const std::string field = member.name.substr(0, member.name.size() - 4);
    if (!is_utf8(field)) {
      reader.fail(member.header, "a member with a name in UTF-8", quote_bytes(field));
    }
    columns.push_back(
        adding([&] { return ErrorFields{.field = field}; },
               [&] { return npz_column(mapped, file, member, field, cache); }));
  }
  return ColumnsSource(std::move(columns));
}

}  // namespace millstream
