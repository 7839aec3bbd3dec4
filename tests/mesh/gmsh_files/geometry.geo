// gmsh geometry.geo -2 -order 1 -format msh41 -o duct_first.41.msh, and so on: see the names of the files.
h = 2;
Point(1) = {0, 0, 0, h}; Point(2) = {2, 0, 0, h}; Point(3) = {2, 1, 0, h}; Point(4) = {0, 1, 0, h};
Point(5) = {1, 0.5, 0, h};
Point(6) = {1.2, 0.5, 0, h}; Point(7) = {1, 0.7, 0, h}; Point(8) = {0.8, 0.5, 0, h}; Point(9) = {1, 0.3, 0, h};
Line(1) = {1, 2}; Line(2) = {2, 3}; Line(3) = {3, 4}; Line(4) = {4, 1};
Transfinite Curve {1, 3} = 3; Transfinite Curve {2, 4} = 2;
Circle(5) = {6, 5, 7}; Circle(6) = {7, 5, 8}; Circle(7) = {8, 5, 9}; Circle(8) = {9, 5, 6};
Transfinite Curve {5:8} = 2;
Curve Loop(1) = {1, 2, 3, 4}; Curve Loop(2) = {5, 6, 7, 8};
Plane Surface(1) = {1, 2};
Physical Curve("inlet") = {-4}; Physical Curve("outlet") = {2}; Physical Curve("wall") = {1, 3};
Physical Curve("body") = {5, 6, 7, 8};
Physical Surface("fluid") = {1};
