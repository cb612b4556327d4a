#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "millstream/io/byte_reader.h"

namespace millstream {

/// One value of a pickle. Imports and calls are recorded, never run.
struct PickleValue {
  enum class Kind : std::uint8_t {
    kNone,
    kInteger,  // or a boolean
    kBytes,    // or text, which Python 2 did not distinguish
    kList,
    kTuple,
    kDict,    // `items` alternate between keys and values
    kGlobal,  // `items` are its module and name
    kCall,    // `items` are the function, its arguments and the state, if any
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  std::string_view bytes;            // borrowed from the pickle
  bool is_latin1 = false;            // `bytes` are text with one character per byte
  std::int64_t offset = 0;           // of `bytes` in the file
  std::vector<std::uint32_t> items;  // indices of other values of the same pickle
};

/// Decodes `value`, a text that encodes one byte per character; Python 3 writes bytes
/// this way with protocol 2. `reader` must be the one that `value` came from. Throws
/// `DataError` for a character above 255.
std::vector<std::byte> latin1_bytes(const PickleValue& value, const ByteReader& reader);

/// The values of a pickle, parsed without running any code. Does not own the bytes of
/// the pickle.
class Pickle {
 public:
  /// Throws `DataError` for a damaged pickle and for instructions that arrays of
  /// numbers, lists and dicts do not need.
  explicit Pickle(ByteReader& reader);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& operator[](std::uint32_t value) const { return values_[value]; }

  /// The value of `dict` for `key`, or null.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleMachine;

  std::vector<PickleValue> values_;
  std::uint32_t root_ = 0;
};

}  // namespace millstream
